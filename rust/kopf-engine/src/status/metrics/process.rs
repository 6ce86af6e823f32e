//! The metrics of the process under the usual names, from Linux's `/proc`. Those that cannot be read are omitted.

use std::fs;

use crate::metrics_text::{add_family, add_sample};

/// The ticks per second in `/proc/self/stat`: the same on all architectures that Rust supports.
const TICKS: f64 = 100.0;

/// Appends the metrics of the process.
pub(super) fn add_process(text: &mut String) {
    for (name, kind, help, value) in [
        ("process_cpu_seconds_total", "counter", "CPU time of the process.", cpu_seconds()),
        ("process_start_time_seconds", "gauge", "Start of the process as Unix time.", start_time()),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", status_kibibytes("VmRSS:")),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory.", status_kibibytes("VmSize:")),
        ("process_threads", "gauge", "Threads of the process.", status_value("Threads:")),
        ("process_open_fds", "gauge", "Open file descriptors.", open_descriptors()),
        ("process_max_fds", "gauge", "The limit of open file descriptors.", max_descriptors()),
    ] {
        if let Some(value) = value {
            add_family(text, name, kind, help);
            add_sample(text, name, &[], value);
        }
    }
}

/// The processor time of all threads.
#[cfg(target_os = "linux")]
fn cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    Some(std::time::Duration::new(seconds, nanos).as_secs_f64())
}

#[cfg(not(target_os = "linux"))]
fn cpu_seconds() -> Option<f64> {
    None
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let booted = field_of(&system, "btime")?;
    Some(booted + start_ticks(&stat)? / TICKS)
}

/// The field `starttime`. The name of the program may contain spaces and brackets: fields are counted from its end.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn status_value(name: &str) -> Option<f64> {
    field_of(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn status_kibibytes(name: &str) -> Option<f64> {
    status_value(name).map(|kibibytes| kibibytes * 1024.0)
}

fn open_descriptors() -> Option<f64> {
    // One of them reads the folder.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u32::try_from(count).ok().map(f64::from)
}

/// The soft limit; none if there is no limit.
fn max_descriptors() -> Option<f64> {
    field_of(&fs::read_to_string("/proc/self/limits").ok()?, "Max open files")
}

/// The first number after the name at the beginning of a line.
fn field_of(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_their_names() {
        let limits = "Limit                     Soft Limit  Hard Limit\nMax open files            1024        4096 files\n";
        assert_eq!(field_of(limits, "Max open files"), Some(1024.0));
        assert_eq!(field_of("Max open files unlimited unlimited files\n", "Max open files"), None);
        assert_eq!(field_of("VmSize:\t  9000 kB\nVmRSS:\t    2000 kB\n", "VmRSS:"), Some(2000.0));
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 4 0 4711 1 2";
        assert_eq!(start_ticks(stat), Some(4711.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_metrics_have_plausible_values() {
        let (started, booted) =
            (start_time().unwrap(), field_of(&fs::read_to_string("/proc/stat").unwrap(), "btime").unwrap());
        assert!(started > booted && started < booted + 1e8, "{started} {booted}");
        let (resident, all) = (status_kibibytes("VmRSS:").unwrap(), status_kibibytes("VmSize:").unwrap());
        assert!(resident > 100_000.0 && resident < all, "{resident} {all}");
        assert!(cpu_seconds().unwrap() > 0.0);
        assert!(open_descriptors().unwrap() >= 3.0);
        assert!(max_descriptors().is_none_or(|limit| limit >= open_descriptors().unwrap()));
        assert!(status_value("Threads:").unwrap() >= 1.0);
        let mut text = String::new();
        add_process(&mut text);
        assert!(text.matches("# TYPE process_").count() >= 6, "{text}");
    }
}
