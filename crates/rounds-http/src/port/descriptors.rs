//! The number of connections that the file descriptors of this process allow.

/// Default limit on connections. Each connection has a buffer, so a higher default would need too much memory.
const MOST: usize = 10_000;

/// The default limit on connections. A quarter of the file descriptors, up to 256 of them, is reserved for everything
/// else: files, a ledger, the listener, and the connection that waits for another to end.
pub(super) fn connections() -> usize {
    leaving_a_reserve(soft_limit())
}

fn leaving_a_reserve(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors.and_then(|descriptors| usize::try_from(descriptors).ok()) else { return MOST };
    let reserve = (descriptors / 4).clamp(16, 256);
    descriptors.saturating_sub(reserve).clamp(1, MOST)
}

/// Number of file descriptors that this process may open, if that is limited.
#[cfg(unix)]
fn soft_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn soft_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_descriptors_is_left_for_everything_else() {
        for (descriptors, connections) in
            [(1024, 768), (256, 192), (64, 48), (20, 4), (8, 1), (4096, 3840), (1 << 20, MOST)]
        {
            assert_eq!(leaving_a_reserve(Some(descriptors)), connections, "of {descriptors}");
        }
        assert_eq!(leaving_a_reserve(None), MOST, "without a limit");
        assert_eq!(leaving_a_reserve(Some(u64::MAX)), MOST);
    }
}
