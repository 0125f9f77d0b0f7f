//! The weather tool in every shape: what each may do that the others do not. The rows of the guide `choosing_a_shape`.

use rounds::Era;
use serde_json::{Value, json};

use super::{Visit, accept, any_instance::Pair};

/// A shape of the tool, and its particular properties.
pub(crate) struct Shape {
    pub(crate) tool: &'static str,
    /// How often the handler runs in a call with one question: for a modern client, and for a legacy one.
    pub(crate) runs: [usize; 2],
    /// How many audit entries such a call leaves.
    pub(crate) audits: [u64; 2],
    /// How many audit entries a call leaves that was rejected because its client cannot be asked.
    pub(crate) audits_when_refused: u64,
    /// Whether a legacy client is asked too, instead of being given metric.
    pub(crate) asks_legacy: bool,
    /// Whether a handler is kept in memory between two legs of a modern client.
    pub(crate) waits: bool,
    /// Whether it reads answers that were not asked for.
    pub(crate) reads_uninvited: bool,
}

/// Guard-first, with its effect below the guard. The other shapes list only their differences.
const GUARD: Shape = Shape {
    tool: "",
    runs: [2, 1],
    audits: [1, 1],
    audits_when_refused: 0,
    asks_legacy: false,
    waits: false,
    reads_uninvited: true,
};
const A: Shape = Shape { tool: "weather_a", runs: [2, 2], asks_legacy: true, ..GUARD };
const B: Shape = Shape { tool: "weather_b", audits: [2, 1], audits_when_refused: 1, asks_legacy: true, ..GUARD };
const C: Shape = Shape { tool: "weather_c", asks_legacy: true, ..GUARD };
const D: Shape = Shape { tool: "weather_d", asks_legacy: true, ..GUARD };
const E: Shape = Shape { tool: "weather_e", ..GUARD };
const F: Shape = Shape { tool: "weather_f", audits_when_refused: 1, ..GUARD };
const G: Shape = Shape { tool: "weather_g", reads_uninvited: false, ..GUARD };
const H: Shape = Shape { tool: "weather_h", runs: [1, 1], waits: true, ..I };
const I: Shape =
    Shape { tool: "weather_i", audits_when_refused: 1, asks_legacy: true, reads_uninvited: false, ..GUARD };
const ASKED: Shape = Shape { tool: "weather_asked", runs: [1, 1], asks_legacy: true, reads_uninvited: false, ..GUARD };
const NAIVE: Shape = Shape { tool: "weather_naive", audits: [2, 1], audits_when_refused: 1, ..GUARD };

const LOWLEVEL: Shape = Shape { tool: "weather_lowlevel", reads_uninvited: false, ..A };

pub(crate) const SHAPES: [Shape; 12] = [A, B, C, D, E, F, G, H, I, ASKED, NAIVE, LOWLEVEL];

impl Shape {
    pub(crate) fn call(&self) -> Value {
        json!({"name": self.tool, "arguments": {"location": "Tokyo"}})
    }

    /// How often the handler runs, and how many audit entries it leaves.
    pub(crate) fn counts(&self, era: Era) -> (usize, u64) {
        let era = usize::from(era == Era::Legacy);
        (self.runs[era], self.audits[era])
    }

    /// Plays the scenario of its row.
    async fn holds(self) {
        let tool = self.tool;
        for era in [Era::Modern, Era::Legacy] {
            let stage = Visit::new(era).await;
            let played = stage.play("tools/call", self.call(), &accept(json!({"units": "metric"}))).await;
            assert_eq!(played.leg.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{tool} {era:?}");
            assert_eq!((stage.events.runs(tool), stage.audited(tool)), self.counts(era), "{tool} {era:?}");
            let asked = era == Era::Modern || self.asks_legacy;
            assert_eq!(played.questions.len(), usize::from(asked), "{tool} {era:?}");
        }
        let mut fleet = Pair::new().await;
        let asked = fleet.other().call(tool, json!({"location": "Tokyo"})).await.asked();
        assert_eq!(fleet.waiting_calls(), usize::from(self.waits), "{tool}");
        let elsewhere = asked.accept("units", json!({"units": "metric"})).send(fleet.other()).await;
        if self.waits {
            elsewhere.frozen();
        } else {
            assert_eq!(elsewhere.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{tool}");
        }
    }
}

macro_rules! rows {
    ($($sentence:ident: $shape:expr;)+) => {
        $(
            #[tokio::test]
            async fn $sentence() {
                $shape.holds().await;
            }
        )+

        #[test]
        fn the_table_in_the_documents_names_the_test_of_each_row() {
            let table = include_str!("../../../crates/rounds/src/guide/choosing_a_shape.md");
            for sentence in [$(stringify!($sentence)),+] {
                assert!(table.contains(&format!("`{sentence}`")), "{sentence}");
            }
        }
    };
}

rows! {
    a_runs_again_for_every_client_in_plain_sight_and_keeps_nothing: A;
    b_runs_again_unseen_and_has_its_effect_twice: B;
    c_runs_again_for_modern_clients_and_waits_for_old_ones: C;
    d_runs_again_for_modern_clients_and_has_another_handler_for_old_ones: D;
    e_runs_again_in_plain_sight_keeps_nothing_and_gives_old_clients_a_default: E;
    f_runs_again_with_its_effect_once_and_gives_old_clients_a_default: F;
    g_finishes_once_keeps_nothing_and_gives_old_clients_a_default: G;
    h_runs_once_waits_in_one_process_and_asks_everybody: H;
    i_runs_again_with_its_effect_once_keeps_nothing_and_asks_everybody: I;
    asked_runs_once_keeps_nothing_and_asks_everybody: ASKED;
    naive_runs_again_in_plain_sight_and_has_its_effect_twice: NAIVE;
    lowlevel_runs_again_with_its_own_state_and_asks_every_client: LOWLEVEL;
}
