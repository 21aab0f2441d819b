//! The heap of this process.

/// Returns free memory of the heap to the kernel. The allocator keeps it otherwise, for as long as a small block lies
/// behind it. Takes milliseconds for a heap of some hundred MiB, in which other threads may wait for the allocator.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no arguments that could be wrong and touches nothing but the allocator's own free lists.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::fs;

    /// Returns the resident memory of this process in bytes, 0 if the kernel does not say.
    fn resident() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.unwrap_or(0) * rustix::param::page_size()
    }

    #[test]
    fn free_memory_between_used_blocks_returns_to_the_kernel() {
        let blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 4096]).collect();
        let full = resident();
        assert!(full > 80 << 20, "{full}");
        // Small blocks stay in between, so that the allocator gives nothing back by itself.
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(16).collect();
        super::trim();
        assert!(full - resident() > 40 << 20, "{full} before, {} after", resident());
        drop(kept);
    }
}
