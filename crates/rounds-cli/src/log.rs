//! The log on stderr.

use std::{fmt, io};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    filter::{LevelFilter, ParseError, Targets},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::{Failure, colour};

/// Logs to stderr, because stdout carries the protocol or the result. Every line names the instance, if it has a name.
///
/// Without `RUST_LOG`, rmcp's warnings are left out: they quote what clients send, without limits on length or number.
pub(crate) fn to_stderr(instance: Option<&str>) -> Result<(), Failure> {
    let set = std::env::var_os("RUST_LOG").unwrap_or_default();
    let filter = match set.is_empty() {
        true => Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::ERROR),
        false => targets(&set.to_string_lossy())?,
    };
    let is_coloured = colour::is_wanted(&io::stderr());
    let named = Named { instance: instance.map(str::to_owned), lines: Format::default().with_ansi(is_coloured) };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(is_coloured).event_format(named);
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

/// Parses levels by target, such as `rounds=debug,rmcp=error`. Targets that are not named log warnings and errors.
fn targets(set: &str) -> Result<Targets, ParseError> {
    let targets: Targets = set.parse()?;
    Ok(match targets.default_level() {
        Some(_) => targets,
        None => targets.with_default(LevelFilter::WARN),
    })
}

/// Lines that begin with the name of the instance.
struct Named {
    instance: Option<String>,
    lines: Format<Full>,
}

impl<S, N> FormatEvent<S, N> for Named
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if let Some(instance) = &self.instance {
            write!(writer, "instance={instance:?} ")?;
        }
        self.lines.format_event(context, writer, event)
    }
}
