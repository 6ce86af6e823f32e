//! The allocator of the extension.
//!
//! Objects are read, handled and dropped by the thousands, and the system's allocators, that of musl first of all, take a
//! noticeable part of that time.
//!
//! It is mimalloc 2: version 3 keeps the main heap in the thread that loads the library, and crashes the process when that
//! thread has ended and another thread goes on with the module.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
