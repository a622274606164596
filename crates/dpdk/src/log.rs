//! DPDK's log, kept in memory instead of written to the terminal: the last lines explain an error.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::{Errno, check};
use crate::ffi;

/// Lines kept. Start-up writes about forty with every driver loaded.
const LINES: usize = 256;

/// Bytes kept of one line.
const LINE_BYTES: usize = 400;

static LOG: Mutex<Log> = Mutex::new(Log { lines: VecDeque::new(), dropped: 0 });

struct Log {
    lines: VecDeque<String>,
    /// Lines taken off the front since the beginning.
    dropped: usize,
}

/// Takes the lines that DPDK and its drivers logged since the last call, oldest first, at most 256.
#[must_use]
pub fn take_log() -> Vec<String> {
    let mut log = lock();
    log.dropped += log.lines.len();
    log.lines.drain(..).collect()
}

/// Sends DPDK's log here from now on.
pub(crate) fn capture() -> Result<(), Errno> {
    // SAFETY: `line` lives as long as the program and accepts any bytes.
    check(unsafe { ffi::lr_log_to(Some(line)) }).map(|_| ())
}

/// A mark to read from later with [`since`].
pub(crate) fn mark() -> usize {
    let log = lock();
    log.dropped + log.lines.len()
}

/// What was logged since `mark`, the most telling line last: joined to one sentence part, empty where nothing was.
pub(crate) fn since(mark: usize) -> String {
    let log = lock();
    let lines: Vec<&str> =
        log.lines.iter().skip(mark.saturating_sub(log.dropped)).map(|line| strip(line)).collect();
    let telling: Vec<&str> = lines.iter().copied().filter(|line| is_telling(line)).collect();
    let specific: Vec<&str> = telling.iter().copied().filter(|line| !is_general(line)).collect();
    let telling = if specific.is_empty() { telling } else { specific };
    let chosen = if telling.is_empty() { &lines } else { &telling };
    let from = chosen.len().saturating_sub(2);
    chosen[from..].join("; ")
}

fn lock() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a line says what went wrong, rather than what is being tried.
fn is_telling(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    [
        "fail",
        "error",
        "cannot",
        "can't",
        "could not",
        "couldn't",
        "invalid",
        "not ",
        "no ",
        "unable",
        "unknown",
    ]
    .iter()
    .any(|word| line.contains(word))
}

/// What DPDK says after what was wrong: its bus code about every device whose driver refuses it (or about the driver of one
/// it accepts), its start about all arguments.
fn is_general(line: &str) -> bool {
    const GENERAL: [&str; 4] = [
        "Driver cannot attach the device",
        "Failed to attach device on primary process",
        "mp action callback",
        "Invalid 'command line' arguments",
    ];
    GENERAL.iter().any(|general| line.contains(general))
        || line.contains("failed to initialize") && line.ends_with("device")
}

/// Without the component's prefix and the final full stop.
fn strip(line: &str) -> &str {
    let line = line.strip_prefix("EAL: ").unwrap_or(line);
    line.trim().trim_end_matches('.')
}

unsafe extern "C" fn line(text: *const std::ffi::c_char, len: usize) {
    // SAFETY: the shim passes a buffer of `len` bytes that lives during the call.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    let text = String::from_utf8_lossy(bytes);
    let mut log = lock();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if log.lines.len() == LINES {
            log.lines.pop_front();
            log.dropped += 1;
        }
        log.lines.push_back(line.chars().take(LINE_BYTES).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_is_chosen_and_the_log_is_bounded() {
        let feed = |text: &str| {
            // SAFETY: a live buffer and its length.
            unsafe { line(text.as_ptr().cast(), text.len()) }
        };
        let from = mark();
        feed("EAL: Detected CPU lcores: 2\nEAL: failed to find driver x.\n");
        feed("EAL: trying again\n");
        assert_eq!(since(from), "failed to find driver x");
        let refused = mark();
        feed("net_x: Couldn't open /x.pcap: No such file\n");
        feed(
            "EAL: Driver cannot attach the device (net_x0)\nEAL: Failed to attach device on primary process\n",
        );
        assert_eq!(since(refused), "net_x: Couldn't open /x.pcap: No such file");
        for i in 0..1000 {
            feed(&format!("line {i} {}\n", "x".repeat(1000)));
        }
        let late = mark();
        feed("EAL: cannot do y\n");
        assert_eq!(since(late), "cannot do y");
        let lines = take_log();
        assert_eq!(lines.len(), LINES);
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES));
        assert!(take_log().is_empty());
    }
}
