//! Progress of a section, on standard error.

/// Counts the steps of one section.
pub(crate) struct Progress {
    section: &'static str,
    steps: usize,
    begun: usize,
}

impl Progress {
    pub(crate) fn new(section: &'static str, steps: usize) -> Self {
        Self { section, steps, begun: 0 }
    }

    /// Begins the next step.
    pub(crate) fn step(&mut self, doing: &str) {
        self.begun += 1;
        eprintln!("{} {}/{}: {doing}", self.section, self.begun, self.steps);
    }
}
