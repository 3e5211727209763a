//! The return codes of CUDA and NCCL functions: their names in the headers, and what they say of the process.

use crate::Layer;

/// The return code of a call that did not succeed: a `cudaError_t`, `CUresult` or `ncclResult_t`, by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// The library whose function returned it.
    pub layer: Layer,
    /// The value.
    pub code: i32,
}

impl ErrorCode {
    /// The name in the library's header; `None` if the header has none.
    pub const fn name(self) -> Option<&'static str> {
        match self.layer {
            Layer::Runtime => runtime_name(self.code),
            Layer::Driver => driver_name(self.code),
            Layer::Nccl => nccl_name(self.code),
        }
    }

    /// Whether the code answers a question or says that nothing was left to do, so that no work was lost: work is not finished
    /// yet, access between peers or memory is as was asked for, the library or context was torn down before, an executable
    /// graph has to be instantiated again, the profiler is in that state already.
    pub const fn is_harmless(self) -> bool {
        match self.layer {
            Layer::Nccl => matches!(self.code, 0 | 7),
            Layer::Runtime | Layer::Driver => {
                matches!(self.code, 0 | 4..=8 | 402 | 600 | 704 | 705 | 708 | 709 | 712 | 713 | 910)
            }
        }
    }

    /// Whether the headers say that the context or communicator is of no use after it: every later call returns the error
    /// again until the process ends. The first call that returns it need not be the one whose work failed.
    pub const fn is_sticky(self) -> bool {
        match self.layer {
            Layer::Nccl => matches!(self.code, 1 | 2 | 3 | 6),
            Layer::Runtime | Layer::Driver => {
                matches!(self.code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 999)
            }
        }
    }
}

/// Names of `cudaError_t`.
const fn runtime_name(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "cudaErrorInvalidValue",
        2 => "cudaErrorMemoryAllocation",
        3 => "cudaErrorInitializationError",
        4 => "cudaErrorCudartUnloading",
        5 => "cudaErrorProfilerDisabled",
        6 => "cudaErrorProfilerNotInitialized",
        7 => "cudaErrorProfilerAlreadyStarted",
        8 => "cudaErrorProfilerAlreadyStopped",
        9 => "cudaErrorInvalidConfiguration",
        12 => "cudaErrorInvalidPitchValue",
        13 => "cudaErrorInvalidSymbol",
        16 => "cudaErrorInvalidHostPointer",
        17 => "cudaErrorInvalidDevicePointer",
        18 => "cudaErrorInvalidTexture",
        19 => "cudaErrorInvalidTextureBinding",
        20 => "cudaErrorInvalidChannelDescriptor",
        21 => "cudaErrorInvalidMemcpyDirection",
        34 => "cudaErrorStubLibrary",
        35 => "cudaErrorInsufficientDriver",
        36 => "cudaErrorCallRequiresNewerDriver",
        37 => "cudaErrorInvalidSurface",
        46 => "cudaErrorDevicesUnavailable",
        49 => "cudaErrorIncompatibleDriverContext",
        52 => "cudaErrorMissingConfiguration",
        53 => "cudaErrorPriorLaunchFailure",
        65 => "cudaErrorLaunchMaxDepthExceeded",
        68 => "cudaErrorSyncDepthExceeded",
        69 => "cudaErrorLaunchPendingCountExceeded",
        98 => "cudaErrorInvalidDeviceFunction",
        100 => "cudaErrorNoDevice",
        101 => "cudaErrorInvalidDevice",
        102 => "cudaErrorDeviceNotLicensed",
        103 => "cudaErrorSoftwareValidityNotEstablished",
        127 => "cudaErrorStartupFailure",
        200 => "cudaErrorInvalidKernelImage",
        201 => "cudaErrorDeviceUninitialized",
        205 => "cudaErrorMapBufferObjectFailed",
        206 => "cudaErrorUnmapBufferObjectFailed",
        207 => "cudaErrorArrayIsMapped",
        208 => "cudaErrorAlreadyMapped",
        209 => "cudaErrorNoKernelImageForDevice",
        210 => "cudaErrorAlreadyAcquired",
        211 => "cudaErrorNotMapped",
        212 => "cudaErrorNotMappedAsArray",
        213 => "cudaErrorNotMappedAsPointer",
        214 => "cudaErrorECCUncorrectable",
        215 => "cudaErrorUnsupportedLimit",
        216 => "cudaErrorDeviceAlreadyInUse",
        217 => "cudaErrorPeerAccessUnsupported",
        218 => "cudaErrorInvalidPtx",
        219 => "cudaErrorInvalidGraphicsContext",
        220 => "cudaErrorNvlinkUncorrectable",
        221 => "cudaErrorJitCompilerNotFound",
        222 => "cudaErrorUnsupportedPtxVersion",
        223 => "cudaErrorJitCompilationDisabled",
        224 => "cudaErrorUnsupportedExecAffinity",
        225 => "cudaErrorUnsupportedDevSideSync",
        226 => "cudaErrorContained",
        300 => "cudaErrorInvalidSource",
        301 => "cudaErrorFileNotFound",
        302 => "cudaErrorSharedObjectSymbolNotFound",
        303 => "cudaErrorSharedObjectInitFailed",
        304 => "cudaErrorOperatingSystem",
        400 => "cudaErrorInvalidResourceHandle",
        401 => "cudaErrorIllegalState",
        402 => "cudaErrorLossyQuery",
        500 => "cudaErrorSymbolNotFound",
        600 => "cudaErrorNotReady",
        700 => "cudaErrorIllegalAddress",
        701 => "cudaErrorLaunchOutOfResources",
        702 => "cudaErrorLaunchTimeout",
        703 => "cudaErrorLaunchIncompatibleTexturing",
        704 => "cudaErrorPeerAccessAlreadyEnabled",
        705 => "cudaErrorPeerAccessNotEnabled",
        708 => "cudaErrorSetOnActiveProcess",
        709 => "cudaErrorContextIsDestroyed",
        710 => "cudaErrorAssert",
        711 => "cudaErrorTooManyPeers",
        712 => "cudaErrorHostMemoryAlreadyRegistered",
        713 => "cudaErrorHostMemoryNotRegistered",
        714 => "cudaErrorHardwareStackError",
        715 => "cudaErrorIllegalInstruction",
        716 => "cudaErrorMisalignedAddress",
        717 => "cudaErrorInvalidAddressSpace",
        718 => "cudaErrorInvalidPc",
        719 => "cudaErrorLaunchFailure",
        720 => "cudaErrorCooperativeLaunchTooLarge",
        721 => "cudaErrorTensorMemoryLeak",
        800 => "cudaErrorNotPermitted",
        801 => "cudaErrorNotSupported",
        802 => "cudaErrorSystemNotReady",
        803 => "cudaErrorSystemDriverMismatch",
        804 => "cudaErrorCompatNotSupportedOnDevice",
        805 => "cudaErrorMpsConnectionFailed",
        806 => "cudaErrorMpsRpcFailure",
        807 => "cudaErrorMpsServerNotReady",
        808 => "cudaErrorMpsMaxClientsReached",
        809 => "cudaErrorMpsMaxConnectionsReached",
        810 => "cudaErrorMpsClientTerminated",
        811 => "cudaErrorCdpNotSupported",
        812 => "cudaErrorCdpVersionMismatch",
        900 => "cudaErrorStreamCaptureUnsupported",
        901 => "cudaErrorStreamCaptureInvalidated",
        902 => "cudaErrorStreamCaptureMerge",
        903 => "cudaErrorStreamCaptureUnmatched",
        904 => "cudaErrorStreamCaptureUnjoined",
        905 => "cudaErrorStreamCaptureIsolation",
        906 => "cudaErrorStreamCaptureImplicit",
        907 => "cudaErrorCapturedEvent",
        908 => "cudaErrorStreamCaptureWrongThread",
        909 => "cudaErrorTimeout",
        910 => "cudaErrorGraphExecUpdateFailure",
        911 => "cudaErrorExternalDevice",
        912 => "cudaErrorInvalidClusterSize",
        913 => "cudaErrorFunctionNotLoaded",
        914 => "cudaErrorInvalidResourceType",
        915 => "cudaErrorInvalidResourceConfiguration",
        999 => "cudaErrorUnknown",
        _ => return None,
    })
}

/// Names of `CUresult`.
const fn driver_name(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        4 => "CUDA_ERROR_DEINITIALIZED",
        5 => "CUDA_ERROR_PROFILER_DISABLED",
        6 => "CUDA_ERROR_PROFILER_NOT_INITIALIZED",
        7 => "CUDA_ERROR_PROFILER_ALREADY_STARTED",
        8 => "CUDA_ERROR_PROFILER_ALREADY_STOPPED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        102 => "CUDA_ERROR_DEVICE_NOT_LICENSED",
        200 => "CUDA_ERROR_INVALID_IMAGE",
        201 => "CUDA_ERROR_INVALID_CONTEXT",
        202 => "CUDA_ERROR_CONTEXT_ALREADY_CURRENT",
        205 => "CUDA_ERROR_MAP_FAILED",
        206 => "CUDA_ERROR_UNMAP_FAILED",
        207 => "CUDA_ERROR_ARRAY_IS_MAPPED",
        208 => "CUDA_ERROR_ALREADY_MAPPED",
        209 => "CUDA_ERROR_NO_BINARY_FOR_GPU",
        210 => "CUDA_ERROR_ALREADY_ACQUIRED",
        211 => "CUDA_ERROR_NOT_MAPPED",
        212 => "CUDA_ERROR_NOT_MAPPED_AS_ARRAY",
        213 => "CUDA_ERROR_NOT_MAPPED_AS_POINTER",
        214 => "CUDA_ERROR_ECC_UNCORRECTABLE",
        215 => "CUDA_ERROR_UNSUPPORTED_LIMIT",
        216 => "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
        217 => "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        218 => "CUDA_ERROR_INVALID_PTX",
        219 => "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
        220 => "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        221 => "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        222 => "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        223 => "CUDA_ERROR_JIT_COMPILATION_DISABLED",
        224 => "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
        225 => "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
        226 => "CUDA_ERROR_CONTAINED",
        300 => "CUDA_ERROR_INVALID_SOURCE",
        301 => "CUDA_ERROR_FILE_NOT_FOUND",
        302 => "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
        303 => "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
        304 => "CUDA_ERROR_OPERATING_SYSTEM",
        400 => "CUDA_ERROR_INVALID_HANDLE",
        401 => "CUDA_ERROR_ILLEGAL_STATE",
        402 => "CUDA_ERROR_LOSSY_QUERY",
        500 => "CUDA_ERROR_NOT_FOUND",
        600 => "CUDA_ERROR_NOT_READY",
        700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
        701 => "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        702 => "CUDA_ERROR_LAUNCH_TIMEOUT",
        703 => "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
        704 => "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        705 => "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        708 => "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
        709 => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        710 => "CUDA_ERROR_ASSERT",
        711 => "CUDA_ERROR_TOO_MANY_PEERS",
        712 => "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        713 => "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        714 => "CUDA_ERROR_HARDWARE_STACK_ERROR",
        715 => "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        716 => "CUDA_ERROR_MISALIGNED_ADDRESS",
        717 => "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        718 => "CUDA_ERROR_INVALID_PC",
        719 => "CUDA_ERROR_LAUNCH_FAILED",
        720 => "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        721 => "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        800 => "CUDA_ERROR_NOT_PERMITTED",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        805 => "CUDA_ERROR_MPS_CONNECTION_FAILED",
        806 => "CUDA_ERROR_MPS_RPC_FAILURE",
        807 => "CUDA_ERROR_MPS_SERVER_NOT_READY",
        808 => "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        809 => "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        810 => "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        811 => "CUDA_ERROR_CDP_NOT_SUPPORTED",
        812 => "CUDA_ERROR_CDP_VERSION_MISMATCH",
        900 => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        901 => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        902 => "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        903 => "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        904 => "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        905 => "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        906 => "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        907 => "CUDA_ERROR_CAPTURED_EVENT",
        908 => "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        909 => "CUDA_ERROR_TIMEOUT",
        910 => "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        911 => "CUDA_ERROR_EXTERNAL_DEVICE",
        912 => "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        913 => "CUDA_ERROR_FUNCTION_NOT_LOADED",
        914 => "CUDA_ERROR_INVALID_RESOURCE_TYPE",
        915 => "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => return None,
    })
}

/// Names of `ncclResult_t`.
const fn nccl_name(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_the_name_of_its_library() {
        let names =
            |code| [Layer::Runtime, Layer::Driver, Layer::Nccl].map(|layer| ErrorCode { layer, code }.name());
        assert_eq!(
            names(2),
            [Some("cudaErrorMemoryAllocation"), Some("CUDA_ERROR_OUT_OF_MEMORY"), Some("ncclSystemError")]
        );
        assert_eq!(names(98), [Some("cudaErrorInvalidDeviceFunction"), None, None]);
        assert_eq!(names(0), [None; 3]);
    }

    #[test]
    fn no_code_is_both_harmless_and_sticky() {
        for layer in [Layer::Runtime, Layer::Driver, Layer::Nccl] {
            for code in 0..1000 {
                let code = ErrorCode { layer, code };
                assert!(!(code.is_harmless() && code.is_sticky()), "{code:?}");
                assert!(!code.is_sticky() || code.name().is_some(), "{code:?}");
            }
        }
        assert!(ErrorCode { layer: Layer::Nccl, code: 7 }.is_harmless());
        assert!(!ErrorCode { layer: Layer::Runtime, code: 7 }.is_sticky());
    }
}
