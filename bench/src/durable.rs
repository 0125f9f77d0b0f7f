//! The cost of replay in a durable flow: the time and the token size of each leg.

use counts::{Server, Weather, answered, asked};
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rounds::{Limits, Rounds};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Lines, Section, Table, figure, whole},
    sample::Sample,
};

/// Number of questions in a flow, in sequence.
const QUESTIONS: usize = 32;

/// Number of flows.
const TURNS: usize = 301;

/// The legs that the table shows, by the number of entries that they replay.
const SHOWN: [usize; 6] = [1, 2, 4, 8, 16, 31];

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("durable", 1);
    progress.step(&format!("{TURNS} flows of {QUESTIONS} questions"));
    let limits = Limits::default().with_rounds(QUESTIONS as u32);
    let server = Server::start(Rounds::builder(Weather::new()).limits(limits).build()?);
    let call = CallToolRequestParams::new("questions").with_arguments(rmcp::object!({"questions": (QUESTIONS)}));
    // Indexed by the number of answers in the journal when the leg arrives. The last leg ends the flow.
    let mut legs: Vec<Sample> = (0..=QUESTIONS).map(|_| Sample::new("")).collect();
    let mut tokens = [0.0; QUESTIONS];
    for turn in 0..=TURNS {
        let mut request = call.clone();
        for entries in 0..QUESTIONS {
            let state = asked(legs[entries].time(server.call(request)).await);
            tokens[entries] = state.len() as f64;
            request = answered(call.clone(), state);
        }
        let end = legs[QUESTIONS].time(server.call(request)).await;
        assert!(matches!(end, CallToolResponse::Complete(_)), "expected the end, got {end:?}");
        if turn == 0 {
            legs.iter_mut().for_each(|leg| *leg = Sample::new(""));
        }
    }
    Ok(section(&legs, &tokens))
}

fn section(legs: &[Sample], tokens: &[f64]) -> Section {
    // The first leg claims nothing, and the last seals nothing, so only the legs between are comparable.
    let first = &legs[0];
    let points =
        |value: &dyn Fn(usize) -> f64| (1..QUESTIONS).map(|entries| (entries as f64, value(entries))).collect();
    let ratios: Vec<(f64, f64)> = points(&|entries| legs[entries].ratio_to(first));
    let micros: Vec<(f64, f64)> = points(&|entries| legs[entries].micros());
    let bytes: Vec<(f64, f64)> = points(&|entries| tokens[entries]);

    let mut table = Table::new(["answers in the journal", "a leg, in first legs", "in this run", "token"]);
    for entries in SHOWN {
        table.push([
            entries.to_string(),
            figure(ratios[entries - 1].1),
            format!("{} µs", figure(micros[entries - 1].1)),
            format!("{} B", whole(bytes[entries - 1].1)),
        ]);
    }
    let (ratio, micro, byte) = (fit(&ratios), fit(&micros), fit(&bytes));
    Section {
        name: "durable",
        title: "Legs of a durable flow",
        text: format!(
            "A durable handler that asks {QUESTIONS} questions in sequence, so that its last legs replay a long \
             journal; {TURNS} flows, without a transport; medians, as multiples of the first leg of the same flow, \
             which took {} µs in this run. Both grow linearly: with n answers in the journal a leg takes {} + {} n \
             first legs ({} + {} n µs), and its token has {} + {} n bytes. This includes all costs of an answer: \
             opening, replaying and sealing it again, and the handler's own part, which formats the message of each \
             question. It does not include the client's part.",
            figure(first.micros()),
            figure(ratio.0),
            figure(ratio.1),
            figure(micro.0),
            figure(micro.1),
            whole(byte.0),
            figure(byte.1),
        ),
        table,
        plots: vec![
            Lines::new("How long a leg takes", "answers in the journal", "first legs").curve("a leg", ratios).into(),
            Lines::new("How long its token is", "answers in the journal", "bytes").curve("a token", bytes).into(),
        ],
    }
}

/// The straight line that fits these points best: its intercept and its slope.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let slope = sum(&|point| (point.0 - x) * (point.1 - y)) / sum(&|point| (point.0 - x).powi(2));
    (y - slope * x, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_through_points_that_are_on_it_or_beside_it() {
        assert_eq!(fit(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]), (3.0, 2.0));
        let (start, slope) = fit(&[(1.0, 5.1), (2.0, 6.8), (3.0, 9.1)]);
        assert!((start - 3.0).abs() < 0.2 && (slope - 2.0).abs() < 0.1, "{start} {slope}");
    }
}
