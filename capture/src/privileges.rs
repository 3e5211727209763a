//! Drops every capability that recording does not need, if `capture` runs as root.

use caps::{CapSet, Capability, CapsHashSet};

/// The capabilities that are kept, with their purpose.
const KEPT: [Capability; 6] = [
    // Load programs and maps, attach uprobes and tracepoints.
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    // Look into other users' processes: memory maps, files through /proc/PID/root.
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    // Let processes of other users run on that were stopped for their probes.
    Capability::CAP_KILL,
    // Write where the user said.
    Capability::CAP_DAC_OVERRIDE,
];

/// Drops the other capabilities from this thread and those that it starts; a command that it starts as root has them
/// again. `admin` keeps CAP_SYS_ADMIN, which probes of single functions need.
pub(crate) fn drop_unneeded(admin: bool) {
    let Ok(have) = caps::read(None, CapSet::Permitted) else {
        return;
    };
    let wanted = KEPT.into_iter().chain(admin.then_some(Capability::CAP_SYS_ADMIN)).collect();
    let kept: CapsHashSet = have.intersection(&wanted).copied().collect();
    if kept.contains(&Capability::CAP_BPF) && kept.contains(&Capability::CAP_PERFMON) {
        // Holding more than is needed is no reason not to record.
        let _ = caps::set(None, CapSet::Effective, &kept);
        let _ = caps::set(None, CapSet::Permitted, &kept);
    }
}
