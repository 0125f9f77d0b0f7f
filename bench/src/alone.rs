//! A separate thread and runtime for measurements within this process, so that no task moves between cores.

use std::error::Error;

use crate::report::Section;

/// An error while measuring.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Runs a measurement there.
pub(crate) async fn alone<F>(measure: impl FnOnce() -> F + Send + 'static) -> Result<Section, Box<dyn Error>>
where
    F: Future<Output = Result<Section, Failure>>,
{
    let measured = tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure())
    });
    measured.await?.map_err(|failure| failure as Box<dyn Error>)
}
