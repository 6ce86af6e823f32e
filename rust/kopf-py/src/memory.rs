//! The allocator of the engine, and when it gives memory back to the system.
//!
//! A listing of thousands of objects leaves megabytes of free blocks, and an allocator looks at them only when it is asked
//! for memory again, which an idle operator does not do. So, when a storm is over, it is told to; and the code that only
//! the storm has needed, or the start, is not kept, either.

use std::convert::Infallible;
use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use tokio::runtime::Runtime;
use tokio::time::sleep;

// A fifth of the engine's time went to the system's allocator: objects come, are looked at, and go, by the thousands.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, of which the bindings have no name; and the tenth part of the milliseconds for which free
/// pages are kept while memory is asked for: they are needed again soon, and to get them anew costs a page fault each.
const PURGE_DELAY: mi_option_t = 15;
const KEPT: c_long = 10;

/// So many items from the engine are a storm.
const STORM: usize = 200;
/// It is over when so little has come in such a time.
const CALM: usize = 50;
const QUIET: Duration = Duration::from_millis(200);
/// Where it never gets quiet, it is done after so many looks nevertheless.
const LOOKS: u32 = 150;

/// How much the engine has sent since memory was given back.
static MOVED: AtomicUsize = AtomicUsize::new(0);
/// Somebody waits for the end of a storm.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// The pauses after which a part of the start may be over: the imports, before the engine begins; and then the rest. Clusters
/// are slow at times.
const PARTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(400),
    Duration::from_millis(1600),
    Duration::from_secs(4),
    Duration::from_secs(14),
];

/// What is not needed for so long is rare.
const RARE: Duration = Duration::from_mins(1);

/// Sets the allocator up.
pub(crate) fn set_up() {
    #[expect(unsafe_code, reason = "an option of the allocator, which takes any number")]
    unsafe {
        mi_option_set(PURGE_DELAY, KEPT);
    }
}

/// So many items have come from the engine: after many of them, memory is given back as soon as it is quiet.
pub(crate) fn moved(runtime: &Runtime, count: usize) {
    if count == 0 || MOVED.fetch_add(count, Ordering::Relaxed) + count < STORM {
        return;
    }
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // In the thread whose memory it mostly is.
        runtime.spawn(tidy());
    }
}

/// Keeps an engine small, from its begin on: code that only the start has needed is let go, and later on, now and then, what
/// rare work has needed.
pub(crate) async fn keep_small() -> Infallible {
    for pause in PARTS {
        sleep(pause).await;
        forget_code();
    }
    loop {
        sleep(RARE).await;
        forget_code();
    }
}

fn forget_code() {
    #[cfg(target_os = "linux")]
    crate::pages::let_go();
}

async fn tidy() {
    let mut before = MOVED.load(Ordering::Relaxed);
    for _ in 0..LOOKS {
        sleep(QUIET).await;
        let now = MOVED.load(Ordering::Relaxed);
        if now - before < CALM {
            break;
        }
        before = now;
    }
    MOVED.store(0, Ordering::Relaxed);
    WATCHED.store(false, Ordering::Release);
    #[expect(
        unsafe_code,
        reason = "it only looks at the free memory of this thread, and at what no thread has"
    )]
    unsafe {
        mi_collect(true);
    }
    forget_code();
}
