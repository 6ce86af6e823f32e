//! The allocator of the extension.
//!
//! Thousands of objects are decoded, handled and dropped, and the system's allocators, above all that of musl, take a
//! noticeable part of that time.
//!
//! It is mimalloc 2: version 3 stores the main heap in the thread that loads the library, and crashes the process when another
//! thread uses the module after that thread has ended.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
