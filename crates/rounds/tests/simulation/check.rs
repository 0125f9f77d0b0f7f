//! The promises, checked against the history of a simulation.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    client::seat,
    history::{End, Event, Leg, Outcome, Shape},
    plan::{Fault, Plan},
    relay::SILENT_MILLIS,
};

/// How much longer than promised something may take, in milliseconds: a call that is not answered, and messages on their way.
const SLACK: u64 = 2_500;

/// Returns what is broken, a line each.
pub(crate) fn check(plan: &Plan, history: &[(u64, Event)]) -> Vec<String> {
    let read = Read::new(plan, history);
    let mut broken = Vec::new();
    read.one_reply_for_a_token_and_its_answers(&mut broken);
    read.every_reply_is_the_flows_own(&mut broken);
    read.one_effect_for_a_flow_and_key(&mut broken);
    read.every_flow_ends_as_it_may(&mut broken);
    read.nothing_is_answered_past_its_deadline(&mut broken);
    read.a_lapsed_lease_is_noticed_in_time(&mut broken);
    read.a_routed_leg_has_one_deadline(&mut broken);
    broken
}

/// The history, by what is looked for.
struct Read<'a> {
    plan: &'a Plan,
    history: &'a [(u64, Event)],
    /// When each leg was sent.
    sent: BTreeMap<u32, (u64, &'a Leg)>,
    replied: Vec<(u64, &'a Leg, &'a Outcome)>,
    /// When a leg was over for its client.
    heard: BTreeMap<u32, (u64, &'a Outcome)>,
    /// When each token was first in a reply, when the first token of its flow was, and on which process the flow began.
    tokens: BTreeMap<&'a str, Token<'a>>,
    faults: Vec<Interval<'a>>,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    issued: u64,
    began: u64,
    owner: &'a str,
}

struct Interval<'a> {
    fault: Fault,
    process: &'a str,
    begins: u64,
    ends: u64,
}

impl<'a> Read<'a> {
    fn new(plan: &'a Plan, history: &'a [(u64, Event)]) -> Self {
        let mut read = Self {
            plan,
            history,
            sent: BTreeMap::new(),
            replied: Vec::new(),
            heard: BTreeMap::new(),
            tokens: BTreeMap::new(),
            faults: Vec::new(),
        };
        let mut numbers = BTreeMap::new();
        for (at, event) in history {
            match event {
                Event::Begins { number, fault, process } => {
                    numbers.insert(*number, read.faults.len());
                    read.faults.push(Interval { fault: *fault, process, begins: *at, ends: u64::MAX });
                }
                Event::Ends { number } => read.faults[numbers[number]].ends = *at,
                Event::Sent(leg) => drop(read.sent.insert(leg.leg, (*at, leg))),
                Event::Heard { leg, outcome } => drop(read.heard.insert(*leg, (*at, outcome))),
                Event::Replied { leg, outcome } => {
                    let leg = read.sent[leg].1;
                    read.replied.push((*at, leg, outcome));
                    if let Outcome::Asked { state, .. } = outcome {
                        let before = leg.state.as_deref().and_then(|state| read.tokens.get(state)).copied();
                        let (began, owner) = before.map_or((*at, &*leg.instance), |token| (token.began, token.owner));
                        read.tokens.entry(state).or_insert(Token { issued: *at, began, owner });
                    }
                }
                _ => {}
            }
        }
        read
    }

    fn token(&self, leg: &Leg) -> Option<Token<'a>> {
        self.tokens.get(leg.state.as_deref()?).copied()
    }

    /// Whether a fault of this kind was under way between two moments.
    fn had(&self, from: u64, to: u64, is: impl Fn(&Interval<'_>) -> bool) -> bool {
        self.faults.iter().any(|fault| fault.begins <= to && fault.ends >= from && is(fault))
    }

    /// Whether the network lost something between two moments.
    fn had_loss(&self, from: u64, to: u64) -> bool {
        self.history.iter().any(|(at, event)| (from..=to).contains(at) && *event == Event::Lost)
    }

    fn one_reply_for_a_token_and_its_answers(&self, broken: &mut Vec<String>) {
        let mut replies: BTreeMap<&str, (&str, &Outcome)> = BTreeMap::new();
        for (at, leg, outcome) in self.replied.iter().filter(|(_, _, outcome)| outcome.is_reply()) {
            let Some(state) = leg.state.as_deref() else { continue };
            let first = *replies.entry(state).or_insert((leg.answer, outcome));
            if first != (leg.answer, *outcome) {
                broken.push(format!("at {at} leg {} got {outcome:?}, and an earlier one {first:?}", leg.leg));
            }
        }
    }

    fn every_reply_is_the_flows_own(&self, broken: &mut Vec<String>) {
        for (at, leg, outcome) in &self.replied {
            let Outcome::Text(text) = outcome else { continue };
            let seat = seat(if leg.answer.is_empty() { crate::client::SEAT } else { leg.answer });
            if *text != format!("flight {}: {seat:?}", leg.flow) {
                broken.push(format!("at {at} leg {} of flow {} got the reply {text:?}", leg.leg, leg.flow));
            }
        }
    }

    fn one_effect_for_a_flow_and_key(&self, broken: &mut Vec<String>) {
        let mut charges: BTreeMap<u32, Vec<(u64, &str)>> = BTreeMap::new();
        for (at, event) in self.history {
            if let Event::Charged { flow, key, .. } = event {
                charges.entry(*flow).or_default().push((*at, key));
            }
        }
        for (flow, charges) in &charges {
            let keys: BTreeSet<_> = charges.iter().map(|(_, key)| key).collect();
            if keys.len() > 1 {
                broken.push(format!("flow {flow} was charged under {} keys: {charges:?}", keys.len()));
            }
            let is_linear = self.sent.values().any(|(_, leg)| leg.flow == *flow && leg.shape == Shape::Linear);
            for pair in charges.windows(2) {
                let (from, to) = (pair[0].0.saturating_sub(1_000), pair[1].0);
                // The airline knows the key. That it is called again needs a crash, or a store that did not record.
                if is_linear || !(self.had(from, to, |_| true) || self.had_loss(from, to)) {
                    broken.push(format!("flow {flow} ran its effect at {} and again at {}", pair[0].0, pair[1].0));
                }
            }
        }
        for (_, event) in self.history {
            if let Event::Over { flow, end: End::Text { .. } } = event
                && !charges.contains_key(flow)
            {
                broken.push(format!("flow {flow} ended without its effect"));
            }
        }
    }

    fn every_flow_ends_as_it_may(&self, broken: &mut Vec<String>) {
        let mut over = BTreeSet::new();
        for (at, event) in self.history {
            let Event::Over { flow, end } = event else { continue };
            over.insert(*flow);
            match end {
                End::Text { .. } => {}
                End::GivenUp => broken.push(format!("flow {flow} never ended: its client gave up at {at}")),
                End::Lost { leg, outcome } => {
                    if !self.may_be_lost(self.sent[leg].1, *at) {
                        broken.push(format!("flow {flow} was lost at {at} to {outcome:?}, in leg {leg}"));
                    }
                }
            }
        }
        for flow in 0..self.plan.flows {
            if !over.contains(&flow) {
                broken.push(format!("flow {flow} is not over"));
            }
        }
    }

    /// Whether a flow may end with an error that no retry helps against.
    fn may_be_lost(&self, last: &Leg, at: u64) -> bool {
        let Some(token) = self.token(last) else { return false };
        let legs = || self.sent.values().filter(|(_, leg)| leg.flow == last.flow);
        // Its time is over: so far, the promise is that it ends.
        let expired = at >= token.issued + millis(self.plan.round) || at >= token.began + millis(self.plan.flow);
        // Its client gave other answers as well.
        let forked = legs().any(|(_, leg)| leg.state == last.state && leg.answer != last.answer);
        if expired || forked {
            return true;
        }
        if last.shape != Shape::Linear {
            return false;
        }
        // Its client cancelled a leg, and its handler with it.
        let cancelled = legs().any(|(_, leg)| {
            matches!(self.heard.get(&leg.leg), Some((_, Outcome::Nothing("cancelled")))) && leg.state.is_some()
        });
        // The handler is gone with its process, or legs from elsewhere could not reach it for a while.
        let unreachable = self.had(token.began, at, |fault| {
            fault.process == token.owner
                && match fault.fault {
                    Fault::Kill(_) | Fault::Pause(_) => true,
                    // A flow does not begin on a process that knows that it is cut off, and is not lost to that. A cut that
                    // closes no connection is noticed by the next check of the subscription.
                    Fault::CutRelay { silent, .. } => {
                        let noticed = if silent { fault.begins + SILENT_MILLIS } else { fault.begins };
                        noticed >= token.began
                    }
                    _ => false,
                }
        });
        cancelled || unreachable
    }

    fn nothing_is_answered_past_its_deadline(&self, broken: &mut Vec<String>) {
        for (at, leg, outcome) in self.replied.iter().filter(|(_, _, outcome)| outcome.is_reply()) {
            let Some(token) = self.token(leg) else { continue };
            let sent = self.sent[&leg.leg].0;
            if sent > token.issued + millis(self.plan.round) {
                broken.push(format!(
                    "leg {} was sent at {sent}, after its token had expired, and got {outcome:?}",
                    leg.leg
                ));
            }
            if *at > token.began + millis(self.plan.flow) + SLACK {
                broken.push(format!("leg {} got {outcome:?} at {at}, after the deadline of its flow", leg.leg));
            }
        }
    }

    fn a_lapsed_lease_is_noticed_in_time(&self, broken: &mut Vec<String>) {
        for (at, event) in self.history {
            let Event::Lapsed { claim, lapsed, waits_since } = event else { continue };
            let from = lapsed.saturating_sub(3_000);
            let is_disturbed = self.had(from, *at, |fault| fault.ends != u64::MAX) || self.had_loss(from, *at);
            if waits_since < lapsed && !is_disturbed && *at > lapsed + millis(self.plan.lease) / 10 + SLACK {
                broken.push(format!(
                    "a leg waited since {waits_since}, the lease lapsed at {lapsed}, and that was noticed at {at}: {claim}"
                ));
            }
        }
    }

    fn a_routed_leg_has_one_deadline(&self, broken: &mut Vec<String>) {
        for (at, leg, outcome) in &self.replied {
            let Some(token) = self.token(leg).filter(|_| leg.shape == Shape::Linear) else { continue };
            let sent = self.sent[&leg.leg].0;
            let stood_still =
                self.had(sent, *at, |fault| matches!(fault.fault, Fault::Pause(_)) && fault.process == leg.instance);
            if leg.instance == token.owner || stood_still {
                continue;
            }
            let signs = self.history.iter().filter_map(|(at, event)| match event {
                Event::Delivered { from, to } if from == token.owner && *to == leg.instance => Some(*at),
                _ => None,
            });
            // After so long a silence it no longer listens.
            let hears = |heard: u64, sign: u64| if (heard..heard + 6_500).contains(&sign) { sign } else { heard };
            let heard = signs.filter(|sign| (sent..=*at).contains(sign)).fold(sent, hears);
            // Three seconds of silence, with an errand that is sent again after each.
            let until = (sent + millis(self.plan.wait)).max(heard + 9_000) + SLACK;
            if *at > until {
                broken.push(format!(
                    "leg {} was routed at {sent}, heard of its owner at {heard}, and got {outcome:?} as late as {at}",
                    leg.leg
                ));
            }
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    duration.as_millis() as u64
}
