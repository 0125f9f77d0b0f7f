//! Traces that began at the client: a W3C `traceparent` in a request's `_meta` becomes the parent of the leg's span.

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The position of the current span in its trace, as a `traceparent` and a `tracestate`.
pub(crate) fn here() -> Option<(String, String)> {
    let context = tracing::Span::current().context();
    let here = context.span().span_context().clone();
    let parent = || format!("00-{}-{}-{:02x}", here.trace_id(), here.span_id(), here.trace_flags());
    here.is_valid().then(|| (parent(), here.trace_state().header()))
}

/// Sets the span's parent. If `parent` cannot be read, the span begins a trace of its own.
pub(crate) fn set_parent(span: &tracing::Span, parent: &str, state: Option<&str>) {
    let state = state.and_then(|state| state.parse::<TraceState>().ok());
    if let Some(parent) = read(parent, state.unwrap_or_default()) {
        let context = Context::new().with_remote_span_context(parent);
        if let Err(error) = span.set_parent(context) {
            tracing::debug!(target: "rounds", %error, "the span does not take the client's trace as its parent");
        }
    }
}

/// Reads a `00-<trace id>-<span id>-<flags>`.
fn read(traceparent: &str, state: TraceState) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed =
        version.len() == 2 && version != "ff" && trace.len() == 32 && span.len() == 16 && flags.len() == 2;
    let flags = u8::from_str_radix(flags, 16).ok().filter(|_| well_formed)?;
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(flags),
        true,
        state,
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_a_broken_one_is_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = read(good, TraceState::default()).unwrap();
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(context.is_remote() && context.is_sampled());
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-xyf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(read(bad, TraceState::default()).is_none(), "{bad}");
        }
    }
}
