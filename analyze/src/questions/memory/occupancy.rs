//! Who has a device's memory at an instant: one process, and all others.

use serde::Serialize;

use super::state::{Device, Moment, Share};

/// The memory of one device by owner, as one process sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// The bytes that the process has: its allocator, its libraries and its context.
    pub own_bytes: i64,
    /// The bytes that are not of this process.
    pub others_bytes: i64,
    /// The part of [`Self::others_bytes`] by process, largest first; `None` is what the driver attributes to no process.
    pub others: Vec<(Option<u32>, i64)>,
}

impl Occupancy {
    /// Splits the device that a process uses; returns `None` if the driver's counters were not read, or name the process on
    /// no device or on several.
    pub fn of(moment: &Moment, pid: u32) -> Option<Self> {
        let is_own = |share: &Share| share.pid == Some(pid);
        let mut devices = moment.devices.iter().filter(|device| device.shares.iter().any(is_own));
        let (Some(device), None) = (devices.next(), devices.next()) else { return None };
        Some(Self::on(device, pid))
    }

    fn on(device: &Device, pid: u32) -> Self {
        let mut others: Vec<(Option<u32>, i64)> = Vec::new();
        let mut own_bytes = 0;
        for share in &device.shares {
            if share.pid == Some(pid) {
                own_bytes += share.size_bytes;
            } else {
                match others.iter_mut().find(|(of, _)| *of == share.pid) {
                    Some((_, sum)) => *sum += share.size_bytes,
                    None => others.push((share.pid, share.size_bytes)),
                }
            }
        }
        others.sort_by_key(|(pid, bytes)| (std::cmp::Reverse(*bytes), *pid));
        Self { own_bytes, others_bytes: others.iter().map(|(_, bytes)| bytes).sum(), others }
    }

    /// Returns whether the memory of others is why so many bytes were missing: without it they would have been there, and
    /// others have more than the process itself. A neighbour's context beside a process that fills the device is not why.
    pub fn is_of_neighbours(&self, missing_bytes: i64) -> bool {
        self.others_bytes >= missing_bytes && self.others_bytes > self.own_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(shares: &[(Option<u32>, i64)]) -> Moment {
        let share = |(pid, size_bytes): &(Option<u32>, i64)| Share {
            part: "process",
            pid: *pid,
            library: None,
            size_bytes: *size_bytes,
        };
        let used_bytes = shares.iter().map(|(_, bytes)| bytes).sum();
        let device = Device {
            device: 0,
            reading_age_ns: 0,
            read_bytes: used_bytes,
            used_bytes,
            shares: shares.iter().map(share).collect(),
        };
        Moment {
            label: String::new(),
            ts_ns: 0,
            since_start_ns: 0,
            allocators: Vec::new(),
            drivers: Vec::new(),
            devices: vec![device],
        }
    }

    #[test]
    fn what_others_have_is_why_only_if_it_is_most_and_enough() {
        let shares = [(Some(1), 30), (Some(1), 10), (Some(2), 35), (None, 6), (Some(2), 20)];
        let found = Occupancy::of(&moment(&shares), 1).expect("an occupancy");
        assert_eq!((found.own_bytes, found.others_bytes), (40, 61));
        assert_eq!(found.others, [(Some(2), 55), (None, 6)]);
        assert_eq!([61, 62].map(|missing| found.is_of_neighbours(missing)), [true, false]);
        let small = Occupancy::of(&moment(&[(Some(1), 50), (Some(2), 50)]), 1).expect("an occupancy");
        assert!(!small.is_of_neighbours(1));
        assert_eq!(Occupancy::of(&moment(&shares), 3), None);
    }
}
