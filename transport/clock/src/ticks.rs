//! Sources of ticks.

/// The counter behind a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The processor's time-stamp counter, which counts at one rate on all cores.
    Tsc,
    /// `CLOCK_MONOTONIC`, one tick per nanosecond.
    System,
}

impl Source {
    /// Returns the best source of this machine. The time-stamp counter is trusted only where the
    /// processor reports it as invariant *and* the kernel, which watches it on every core, keeps
    /// time by it.
    pub fn detect() -> Self {
        const SYSFS: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let kernel_uses_tsc = std::fs::read_to_string(SYSFS)
            .is_ok_and(|name| matches!(name.trim(), "tsc" | "kvm-clock"));
        if kernel_uses_tsc && is_tsc_invariant() { Self::Tsc } else { Self::System }
    }

    /// Reads the tick count after every earlier load and store of this thread has been performed
    /// (for a store: given a full fence before) and before any later one.
    #[inline]
    pub fn ticks(self) -> u64 {
        match self {
            Self::Tsc => ordered_tsc(),
            // The kernel's own read has the same ordering.
            Self::System => system_ns(libc::CLOCK_MONOTONIC),
        }
    }
}

/// Reads a system clock, in nanoseconds.
pub(crate) fn system_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes; both clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
fn is_tsc_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT
        && __cpuid(POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ordered_tsc() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // The processor may execute `rdtsc` ahead of earlier instructions, and later instructions ahead
    // of it; a fence on either side prevents both (Intel SDM, "RDTSC").
    // SAFETY: both instructions exist on every x86-64 processor, and `Source::Tsc` is only chosen
    // where user space may execute `rdtsc`.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_tsc_invariant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn ordered_tsc() -> u64 {
    system_ns(libc::CLOCK_MONOTONIC)
}
