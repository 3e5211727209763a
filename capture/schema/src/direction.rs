//! The direction of a copy.

/// The vocabulary of the `direction` column, numbered as `cudaMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to host.
    HostToHost,
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within one device.
    DeviceToDevice,
    /// The driver infers the direction from the pointers (unified addressing).
    Default,
    /// Between two devices.
    PeerToPeer,
}

impl Direction {
    /// The direction that a `cudaMemcpyKind` argument stands for; `None` if the value is not valid.
    pub fn from_cuda(kind: u64) -> Option<Self> {
        match kind {
            0 => Some(Self::HostToHost),
            1 => Some(Self::HostToDevice),
            2 => Some(Self::DeviceToHost),
            3 => Some(Self::DeviceToDevice),
            4 => Some(Self::Default),
            _ => None,
        }
    }

    /// The value in the `direction` column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostToHost => "h2h",
            Self::HostToDevice => "h2d",
            Self::DeviceToHost => "d2h",
            Self::DeviceToDevice => "d2d",
            Self::Default => "default",
            Self::PeerToPeer => "p2p",
        }
    }
}
