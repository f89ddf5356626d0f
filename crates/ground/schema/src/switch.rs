//! Switches of UCX that a case may set, each with its variable and value.

/// Makes the type from its one table: word, variable without `UCX_`, value, and its documentation.
macro_rules! switches {
    ($($(#[$doc:meta])+ $v:ident => $word:literal, $variable:literal, $value:literal;)+) => {
        /// A switch of UCX that differs from how UCX was started, for one case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum UcxSetting { $($(#[$doc])+ $v,)+ }
        crate::words!(UcxSetting, "switch of UCX", { $($v => $word,)+ });
        impl UcxSetting {
            /// The variable's name without `UCX_`, and its value.
            pub const fn setting(self) -> (&'static str, &'static str) {
                match self { $(Self::$v => ($variable, $value)),+ }
            }
        }
    };
}

switches! {
    /// Large messages are read by the receiver.
    RndvGet => "rndv-get", "RNDV_SCHEME", "get_zcopy";
    /// Large messages are written by the sender.
    RndvPut => "rndv-put", "RNDV_SCHEME", "put_zcopy";
    /// Large messages go in fragments, copied in and out.
    RndvAm => "rndv-am", "RNDV_SCHEME", "am";
    /// Large messages are read through fragments of host memory.
    RndvGetPipeline => "rndv-get-ppln", "RNDV_SCHEME", "get_ppln";
    /// Large messages are written through fragments of host memory.
    RndvPutPipeline => "rndv-put-ppln", "RNDV_SCHEME", "put_ppln";
    /// The receiver's processor loads large messages from attached memory.
    RndvPointer => "rndv-rkey-ptr", "RNDV_SCHEME", "rkey_ptr";
    /// Every message is sent without asking.
    RndvNever => "rndv-never", "RNDV_THRESH", "inf";
    /// Every message is asked for first.
    RndvAlways => "rndv-always", "RNDV_THRESH", "0";
    /// No message that is sent without asking goes from where it lies.
    ZcopyNever => "zcopy-never", "ZCOPY_THRESH", "inf";
    /// Every message that is sent without asking goes from where it lies.
    ZcopyAlways => "zcopy-always", "ZCOPY_THRESH", "0";
    /// The first generation of protocols.
    ProtoV1 => "proto-v1", "PROTO_ENABLE", "n";
    /// The second generation of protocols.
    ProtoV2 => "proto-v2", "PROTO_ENABLE", "y";
    /// NVIDIA's device memory is not exported as dma-buf.
    CudaNoDmabuf => "cuda-no-dmabuf", "CUDA_COPY_DMABUF", "n";
    /// Device memory of other processes is opened again for every operation.
    CudaNoIpcCache => "cuda-no-ipc-cache", "CUDA_IPC_CACHE", "n";
    /// Zero-copy operations of ROCm's copy transport wait for their end.
    RocmSyncZcopy => "rocm-sync-zcopy", "ROCM_COPY_ENABLE_ASYNC_ZCOPY", "n";
    /// AMD's device memory is exported as dma-buf.
    RocmDmabuf => "rocm-dmabuf", "ROCM_COPY_DMABUF", "y";
    /// Device memory of other processes is opened again for every operation.
    RocmNoIpcCache => "rocm-no-ipc-cache", "ROCM_IPC_CACHE_IPC_HANDLES", "n";
    /// No message from device memory is copied by the processor's loads.
    RocmD2hEngine => "rocm-d2h-engine", "ROCM_COPY_D2H_THRESH", "0";
    /// No message to device memory is copied by the processor's stores.
    RocmH2dEngine => "rocm-h2d-engine", "ROCM_COPY_H2D_THRESH", "0";
}

impl UcxSetting {
    /// The environment variable that sets it for a process, and its value.
    pub fn variable(self) -> (String, &'static str) {
        let (name, value) = self.setting();
        (format!("UCX_{name}"), value)
    }

    /// Separates, in the description of a rank's UCX, the variables that its build does not have.
    pub const INERT: &str = "; inert in this build: ";

    /// Whether it is of a transport for device memory, so that messages of host memory do not pass
    /// it.
    pub fn is_of_devices(self) -> bool {
        let (variable, _) = self.setting();
        variable.starts_with("CUDA_") || variable.starts_with("ROCM_")
    }
}

crate::serde_as_text!(UcxSetting);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_switches_do_the_same_and_no_word_has_what_separates_words() {
        let settings: BTreeSet<_> = UcxSetting::ALL.iter().map(|s| s.setting()).collect();
        assert_eq!(settings.len(), UcxSetting::ALL.len());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for switch in UcxSetting::ALL {
            assert!(switch.word().chars().all(plain), "{switch}");
            assert!(!switch.setting().0.starts_with("UCX_"), "{switch}");
        }
    }
}
