//! Lets go of code in memory that nobody executes any more: most of what a start needs is never needed again.
//!
//! The pages of libraries are the same as in their files, and come back when somebody looks at them, at the price of
//! a page fault for many of them at once. Until then, they are not the process's. Nothing else is touched: not what was
//! ever written to, be it by the loader or by those who patch code (debuggers, tracers).

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// What the loader has of one library.
type Library = libc::dl_phdr_info;

/// In the kernel's words about a page: it is in memory; it is on a disk for swapping; it is that of a file.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// How many pages are asked about at once.
const CHUNK: usize = 512;

/// Lets go of the code and the constants of all libraries, and of the program.
pub(crate) fn let_go() {
    #[expect(unsafe_code, reason = "asks for the size of a page; there are no pointers")]
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    // Where nobody may know what is in memory, all stays as it is.
    let (Ok(size), Ok(map)) = (size, File::open("/proc/self/pagemap")) else { return };
    let mut pages = Pages { map, size };
    #[expect(
        unsafe_code,
        reason = "the callback gets the pages back, and only until this returns; libraries neither come nor go meanwhile"
    )]
    unsafe {
        libc::dl_iterate_phdr(Some(visit), (&raw mut pages).cast());
    }
}

/// The account of the process's pages.
struct Pages {
    map: File,
    size: usize,
}

impl Pages {
    /// Whether all the pages are as in the file, as far as they are in memory.
    fn are_untouched(&self, first: usize, count: usize) -> io::Result<bool> {
        let mut words = [0_u8; CHUNK * size_of::<u64>()];
        for start in (first..first + count).step_by(CHUNK) {
            let words = &mut words[..CHUNK.min(first + count - start) * size_of::<u64>()];
            self.map.read_exact_at(words, (start * size_of::<u64>()) as u64)?;
            let (words, _) = words.as_chunks();
            let own = |word: u64| word & (PRESENT | SWAPPED) != 0 && word & OF_FILE == 0;
            if words.iter().any(|word| own(u64::from_ne_bytes(*word))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets go of a part of a library: `length` bytes from the address on.
    fn release(&self, address: usize, length: usize) {
        let first = address / self.size;
        let count = (address + length).div_ceil(self.size) - first;
        if self.are_untouched(first, count).unwrap_or(false) {
            #[expect(
                unsafe_code,
                reason = "the pages are of a library that is loaded, cannot be written, and are as in its file: they come \
                          back when anybody looks at them"
            )]
            unsafe {
                libc::madvise((first * self.size) as *mut c_void, count * self.size, libc::MADV_DONTNEED);
            }
        }
    }
}

#[expect(unsafe_code, reason = "is called by the loader, with what it knows of a library that is loaded")]
unsafe extern "C" fn visit(library: *mut Library, _: usize, pages: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "both are valid until this returns, and nobody else has the pages")]
    let (library, pages) = unsafe { (&*library, &*pages.cast::<Pages>()) };
    #[expect(unsafe_code, reason = "the loader's names end with a zero")]
    let name = unsafe { CStr::from_ptr(library.dlpi_name) }.to_bytes();
    // The program has no name; the kernel's own library has no file.
    if !name.is_empty() && !name.contains(&b'/') {
        return 0;
    }
    #[expect(unsafe_code, reason = "the loader has so many headers of the library there")]
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into()) };
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let (address, length) = (library.dlpi_addr + header.p_vaddr, header.p_filesz);
            if let (Ok(address), Ok(length)) = (usize::try_from(address), usize::try_from(length)) {
                pages.release(address, length);
            }
        }
    }
    0
}
