//! What happened: each flow with all its legs, and each fault. It is checked when everything is over.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::faults::Kind as FaultKind;

/// How long a question may be answered: `--round-lifetime` of the instances.
pub(crate) const LIFETIME: Duration = Duration::from_secs(8);

/// How long a leg may take: `--wait` of the instances, and a few calls to a store that does not answer.
pub(crate) const LEG: Duration = Duration::from_secs(12);

/// An instance that pauses for longer than this may lose a lease, which is four seconds long and renewed at least every
/// two.
const LEASE: Duration = Duration::from_millis(1900);

/// How long other instances may not know that an instance is connected again.
const UNKNOWN: Duration = Duration::from_secs(10);

pub(crate) struct History {
    began: Instant,
    flows: Mutex<Vec<Flow>>,
    faults: Mutex<Vec<Fault>>,
}

/// How a tool of the gallery is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    Guard,
    GuardWithEffect,
    Steps,
    Linear,
    Durable,
    Declared,
    Booking,
    TaskBooking,
    Transfer,
}

#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) number: usize,
    pub(crate) shape: Shape,
    /// The only reply that it may get in the end.
    pub(crate) expected: String,
    /// Whether its user answers after the question has expired.
    pub(crate) is_late: bool,
    /// When the last question arrived.
    pub(crate) asked: Duration,
    /// The instance that asked first: it has the handler of a linear flow.
    pub(crate) owner: Option<usize>,
    /// Whether the client has sent the answer after which money moves.
    pub(crate) has_paid: bool,
    pub(crate) legs: Vec<Leg>,
    pub(crate) ends: Vec<End>,
}

#[derive(Debug, Clone)]
pub(crate) struct Leg {
    pub(crate) at: usize,
    pub(crate) sent: Duration,
    pub(crate) took: Duration,
    pub(crate) got: String,
}

/// How a flow ended, for one of the legs that were sent last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Reply(String),
    /// The frozen error.
    Frozen,
    /// The frozen error, to an answer that is not the one that was given.
    OtherAnswerRefused,
    /// A reply to an answer that is not the one that was given.
    OtherAnswerTaken,
    /// The client has given up.
    Nothing,
    Wrong(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The instance that it concerns, if it concerns one.
    pub(crate) at: Option<usize>,
    pub(crate) from: Duration,
    pub(crate) to: Option<Duration>,
}

/// Money that was moved, as the store has it.
#[derive(Default)]
pub(crate) struct Books {
    /// The flight of each idempotency key.
    pub(crate) charges: HashMap<String, String>,
    /// What the receiver of all transfers has got.
    pub(crate) received: Option<i64>,
}

/// A promise that was not kept, by a flow or by all of them together.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) flow: Option<usize>,
    pub(crate) what: String,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), flows: Mutex::default(), faults: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn begins(&self, fault: Fault) -> usize {
        let mut faults = self.faults.lock().unwrap();
        faults.push(fault);
        faults.len() - 1
    }

    pub(crate) fn ends(&self, fault: usize) {
        self.faults.lock().unwrap()[fault].to = Some(self.now());
    }

    pub(crate) fn add(&self, flow: Flow) {
        self.flows.lock().unwrap().push(flow);
    }

    pub(crate) fn check(&self, books: &Books) -> Vec<Violation> {
        let (flows, faults) = (self.flows.lock().unwrap(), self.faults.lock().unwrap());
        let mut violations = Vec::new();
        for flow in &*flows {
            let told = flow.check(&faults);
            violations.extend(told.into_iter().map(|what| Violation { flow: Some(flow.number), what }));
        }
        check_charges(&flows, books, &mut violations);
        check_transfers(&flows, books, &mut violations);
        violations
    }

    /// A flow with all its legs, and the faults of its time.
    pub(crate) fn show(&self, number: usize) -> String {
        let (flows, faults) = (self.flows.lock().unwrap(), self.faults.lock().unwrap());
        let mut shown = String::new();
        for flow in flows.iter().filter(|flow| flow.number == number) {
            let _ = writeln!(shown, "{flow}");
            let (from, to) = (flow.began(), flow.ended());
            for fault in faults.iter().filter(|fault| fault.overlaps(from, to)) {
                let _ = writeln!(shown, "  {fault}");
            }
        }
        shown
    }

    /// Everything, a line each.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for fault in self.faults.lock().unwrap().iter() {
            let _ = writeln!(lines, "{fault}");
        }
        for flow in self.flows.lock().unwrap().iter() {
            let _ = writeln!(lines, "{flow}");
        }
        lines
    }

    pub(crate) fn summary(&self) -> String {
        let (flows, faults) = (self.flows.lock().unwrap(), self.faults.lock().unwrap());
        let mut shapes = std::collections::BTreeMap::<String, usize>::new();
        let mut struck = std::collections::BTreeMap::<&str, usize>::new();
        for flow in &*flows {
            *shapes.entry(format!("{:?}", flow.shape)).or_default() += 1;
        }
        for fault in &*faults {
            *struck.entry(fault.kind.name()).or_default() += 1;
        }
        let legs = flows.iter().flat_map(|flow| &flow.legs);
        let longest = legs.clone().map(|leg| leg.took).max().unwrap_or_default();
        let lost = flows.iter().filter(|flow| !flow.is_late && flow.ends.contains(&End::Frozen)).count();
        let expired = flows.iter().filter(|flow| flow.is_late).count();
        let list = |counted: Vec<String>| counted.join(", ");
        format!(
            "{} flows ({}), {} legs, the longest {:.1} s\n\
             {} faults ({})\n\
             {expired} flows were answered too late, {lost} were lost with their instance or expired during a fault",
            flows.len(),
            list(shapes.iter().map(|(shape, number)| format!("{shape} {number}")).collect()),
            legs.count(),
            longest.as_secs_f64(),
            faults.len(),
            list(struck.iter().map(|(kind, number)| format!("{kind} {number}")).collect()),
        )
    }
}

impl Flow {
    pub(crate) fn began(&self) -> Duration {
        self.legs.first().map(|leg| leg.sent).unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> Duration {
        self.legs.iter().map(|leg| leg.sent + leg.took).max().unwrap_or_default()
    }

    fn check(&self, faults: &[Fault]) -> Vec<String> {
        let mut told: Vec<_> = self.ends.iter().filter_map(|end| self.check_end(end, faults)).collect();
        for leg in &self.legs {
            let excused =
                faults.iter().any(|fault| fault.stops(leg.at) && fault.overlaps(leg.sent, leg.sent + leg.took));
            if leg.took > LEG && !excused {
                told.push(format!("a leg took {:.1} s: past its deadline", leg.took.as_secs_f64()));
            }
        }
        told
    }

    fn check_end(&self, end: &End, faults: &[Fault]) -> Option<String> {
        match end {
            End::Reply(text) if *text != self.expected => Some(format!("the reply of another flow: {text}")),
            End::Reply(_) if self.is_late => Some("answered past its deadline, and taken".to_owned()),
            End::Reply(_) | End::OtherAnswerRefused => None,
            End::OtherAnswerTaken => Some("a second, other answer was taken".to_owned()),
            End::Frozen if self.is_late || self.has_expired() || self.is_lost_with_its_instance(faults) => None,
            End::Frozen => Some("lost, though its instance lived".to_owned()),
            End::Nothing if self.is_late => None,
            End::Nothing => Some("no reply at all".to_owned()),
            End::Wrong(what) => Some(format!("a wrong reply: {what}")),
        }
    }

    /// Whether the answer was accepted by no instance before the question expired, because of a fault.
    fn has_expired(&self) -> bool {
        let margin = Duration::from_millis(500);
        self.ended().saturating_sub(self.asked) + margin > LIFETIME
    }

    fn is_lost_with_its_instance(&self, faults: &[Fault]) -> bool {
        let (Shape::Linear, Some(owner)) = (self.shape, self.owner) else { return false };
        faults.iter().any(|fault| fault.loses(owner, self.began(), self.ended()))
    }
}

impl Fault {
    fn overlaps(&self, from: Duration, to: Duration) -> bool {
        self.from <= to && self.to.is_none_or(|end| end >= from)
    }

    /// Whether legs at this instance may take longer meanwhile.
    fn stops(&self, at: usize) -> bool {
        self.at == Some(at) && matches!(self.kind, FaultKind::Pause | FaultKind::Kill)
    }

    /// Whether linear flows of this instance may be lost that were open at this time. Draining loses none, and neither does
    /// a fault of the store.
    fn loses(&self, owner: usize, from: Duration, to: Duration) -> bool {
        if self.at != Some(owner) {
            return false;
        }
        let end = self.to.unwrap_or(Duration::MAX);
        match self.kind {
            FaultKind::Kill => self.overlaps(from, to),
            FaultKind::Pause => self.overlaps(from, to) && end.saturating_sub(self.from) > LEASE,
            FaultKind::Cut => self.from <= to && end.saturating_add(UNKNOWN) >= from,
            _ => false,
        }
    }
}

/// One effect per flow: a flight is charged under one key, if its client has paid, and not otherwise.
fn check_charges(flows: &[Flow], books: &Books, violations: &mut Vec<Violation>) {
    let mut charged: HashMap<&str, usize> = HashMap::new();
    for flight in books.charges.values() {
        *charged.entry(flight).or_default() += 1;
    }
    for flow in flows.iter().filter(|flow| matches!(flow.shape, Shape::Booking | Shape::TaskBooking)) {
        let flight = flow.expected.trim_start_matches("Booked ").split(": ").next().unwrap_or_default();
        let times = charged.remove(flight).unwrap_or_default();
        let is_booked = flow.ends.contains(&End::Reply(flow.expected.clone()));
        let what = match (times, is_booked) {
            (0, true) => "booked, and not charged".to_owned(),
            (1, _) if !flow.has_paid => "charged without a payment".to_owned(),
            (0 | 1, _) => continue,
            _ => format!("charged under {times} keys"),
        };
        violations.push(Violation { flow: Some(flow.number), what });
    }
    let unknown = charged.keys().map(|flight| Violation { flow: None, what: format!("a charge of no flow: {flight}") });
    violations.extend(unknown);
}

/// Each transfer moved its money once: those that were confirmed did, and those without a reply may have.
fn check_transfers(flows: &[Flow], books: &Books, violations: &mut Vec<Violation>) {
    let Some(received) = books.received else { return };
    let amount = |flow: &Flow| flow.expected.trim_start_matches("Transferred ").trim_end_matches('.').parse::<i64>();
    let (mut least, mut most) = (0, 0);
    for flow in flows.iter().filter(|flow| flow.shape == Shape::Transfer) {
        let amount = amount(flow).unwrap_or_default();
        least += if flow.ends.contains(&End::Reply(flow.expected.clone())) { amount } else { 0 };
        most += if flow.has_paid { amount } else { 0 };
    }
    if !(least..=most).contains(&received) {
        let what =
            format!("{received} was transferred: at least {least} was confirmed, and at most {most} was asked for");
        violations.push(Violation { flow: None, what });
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, shape, is_late, owner, ends, .. } = self;
        write!(f, "flow {number}, {shape:?}{}", if *is_late { ", answered late" } else { "" })?;
        if let Some(owner) = owner {
            write!(f, ", asked by {}", name(*owner))?;
        }
        for leg in &self.legs {
            let (sent, took) = (leg.sent.as_secs_f64(), leg.took.as_secs_f64());
            write!(f, "; {sent:.3} s at {} for {took:.3} s: {}", name(leg.at), leg.got)?;
        }
        write!(f, "; {ends:?}")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault {}", self.kind.name())?;
        if let Some(at) = self.at {
            write!(f, " at {}", name(at))?;
        }
        write!(f, " from {:.3} s", self.from.as_secs_f64())?;
        match self.to {
            Some(to) => write!(f, " to {:.3} s", to.as_secs_f64()),
            None => Ok(()),
        }
    }
}

fn name(at: usize) -> char {
    ['a', 'b', 'c'].get(at).copied().unwrap_or('?')
}

/// Lets the check find what is planted, one fault of a server at a time: a check that finds nothing proves nothing.
pub(crate) fn try_check() {
    let second = Duration::from_secs;
    let expected = "Booked LHR to FCO on day 1, seat 12A: charged 140.";
    let leg = Leg { at: 0, sent: second(1), took: second(1), got: String::new() };
    let good = Flow {
        number: 1,
        shape: Shape::Booking,
        expected: expected.to_owned(),
        is_late: false,
        asked: second(1),
        owner: Some(0),
        has_paid: true,
        legs: vec![leg.clone()],
        ends: vec![End::Reply(expected.to_owned())],
    };
    let charged = |keys: &[&str]| {
        let flight = "LHR to FCO on day 1, seat 12A".to_owned();
        Books { charges: keys.iter().map(|key| ((*key).to_owned(), flight.clone())).collect(), received: None }
    };
    let fault = |kind, at| Fault { kind, at, from: second(0), to: Some(second(3)) };
    let check = |flow: &Flow, books: &Books, faults: &[Fault]| {
        let history = History::new();
        history.add(flow.clone());
        *history.faults.lock().unwrap() = faults.to_vec();
        history.check(books).into_iter().map(|violation| violation.what).collect::<Vec<_>>().join("; ")
    };
    let linear = Flow { shape: Shape::Linear, ends: vec![End::Frozen], ..good.clone() };
    let long = Flow { legs: vec![Leg { took: second(20), ..leg }], ..good.clone() };
    let ending = |end| Flow { ends: vec![end], ..good.clone() };
    let (once, none) = (charged(&["k"]), Books::default());
    for (flow, books, faults, finds) in [
        (&good, &once, vec![], ""),
        (&good, &none, vec![], "booked, and not charged"),
        (&good, &charged(&["k", "l"]), vec![], "charged under 2 keys"),
        (&Flow { has_paid: false, ..ending(End::Nothing) }, &once, vec![], "charged without a payment"),
        (&Flow { is_late: true, ..good.clone() }, &once, vec![], "past its deadline, and taken"),
        (&ending(End::Reply("Booked another.".to_owned())), &once, vec![], "the reply of another flow"),
        (&ending(End::OtherAnswerTaken), &once, vec![], "other answer was taken"),
        (&ending(End::Nothing), &once, vec![], "no reply at all"),
        (&ending(End::Wrong("panic".to_owned())), &once, vec![], "a wrong reply"),
        (&ending(End::Frozen), &once, vec![fault(FaultKind::Kill, Some(0))], "though its instance lived"),
        (&linear, &none, vec![], "though its instance lived"),
        (&linear, &none, vec![fault(FaultKind::Kill, Some(1))], "though its instance lived"),
        (&linear, &none, vec![fault(FaultKind::Restart, Some(0))], "though its instance lived"),
        (&linear, &none, vec![fault(FaultKind::StoreKill, None)], "though its instance lived"),
        (&linear, &none, vec![fault(FaultKind::Kill, Some(0))], ""),
        (&long, &once, vec![], "past its deadline"),
        (&long, &once, vec![fault(FaultKind::Pause, Some(0))], ""),
    ] {
        let found = check(flow, books, &faults);
        assert!(
            found.contains(finds) && found.is_empty() == finds.is_empty(),
            "{flow}: {found:?} instead of {finds:?}"
        );
    }
    let transfer = Flow { shape: Shape::Transfer, expected: "Transferred 7.".to_owned(), ..good };
    let transfer = Flow { ends: vec![End::Reply(transfer.expected.clone())], ..transfer };
    for (received, finds) in [(7, ""), (0, "0 was transferred"), (14, "14 was transferred")] {
        let found = check(&transfer, &Books { received: Some(received), ..Books::default() }, &[]);
        assert!(found.contains(finds) && found.is_empty() == finds.is_empty(), "{found:?} instead of {finds:?}");
    }
}
