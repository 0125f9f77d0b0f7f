//! The number of legacy sessions, their owners, and which of them end when there are too many.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    model::RequestId,
    transport::streamable_http_server::session::{SessionId, local::LocalSessionManager},
};

use super::limits::Limits;
use crate::server::seal::Digest;

/// The sessions of one server, over all of its mounts.
#[derive(Default)]
pub(crate) struct Places(Mutex<SessionTable>);

/// The principal of a session. None until the session is admitted, and for callers without a principal.
pub(crate) type Owner = Option<Digest>;

/// A session that ends to free its place for another.
pub(crate) struct Evicted {
    pub(crate) id: SessionId,
    pub(crate) home: Arc<LocalSessionManager>,
}

/// Why a session was not admitted: every session that could end for it has a call in flight.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All { limit: usize },
    OfPrincipal { limit: usize },
    Anonymous { limit: usize },
}

impl Places {
    /// Adds a session whose principal is not known yet. It takes no place before it is [admitted](Self::admit).
    pub(crate) fn enter(&self, id: SessionId, home: Arc<LocalSessionManager>) {
        let in_flight = HashMap::from([(None, 1)]);
        let session = Session { home, owner: None, places: 0, in_flight, idle_since: None };
        self.lock().sessions.insert(id, session);
    }

    /// Gives a session its owner and as many places as it needs, and returns the sessions that have to end for it. Only
    /// idle sessions end, the least recently used first.
    pub(crate) fn admit(
        &self,
        id: &SessionId,
        owner: Owner,
        places: usize,
        limits: &Limits,
        identifies_principals: bool,
    ) -> Result<Vec<Evicted>, Full> {
        let mut taken = self.lock();
        if taken.sessions.get(id).is_none_or(|session| session.places > 0) {
            return Ok(vec![]);
        }
        let ended = taken.room(owner, places, limits, identifies_principals)?;
        let evicted = ended.into_iter().filter_map(|id| Some(Evicted { home: taken.remove(&id)?.home, id })).collect();
        if let Some(session) = taken.sessions.get_mut(id) {
            (session.owner, session.places) = (owner, places);
            taken.places += places;
            taken.shares.entry(owner).or_default().places += places;
        }
        Ok(evicted)
    }

    /// Whether a session exists and was admitted.
    pub(crate) fn is_admitted(&self, id: &SessionId) -> bool {
        self.lock().sessions.get(id).is_some_and(|session| session.places > 0)
    }

    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.lock().sessions.contains_key(id)
    }

    /// Records that a request begins. `None` is the request that opens the session. Returns false if the session has
    /// ended.
    pub(crate) fn begin(&self, id: &SessionId, request: Option<RequestId>) -> bool {
        let mut taken = self.lock();
        taken.wake(id);
        taken.sessions.get_mut(id).map(|session| *session.in_flight.entry(request).or_default() += 1).is_some()
    }

    /// Records that a request ends.
    pub(crate) fn end(&self, id: &SessionId, request: Option<RequestId>) {
        let mut taken = self.lock();
        let Some(session) = taken.sessions.get_mut(id) else { return };
        if let Entry::Occupied(mut begun) = session.in_flight.entry(request) {
            *begun.get_mut() -= 1;
            if *begun.get() == 0 {
                begun.remove();
                taken.rest(id);
            }
        }
    }

    /// Makes an idle session the most recently used one.
    pub(crate) fn touch(&self, id: &SessionId) {
        let mut taken = self.lock();
        taken.wake(id);
        taken.rest(id);
    }

    /// Removes a session that has ended.
    pub(crate) fn leave(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        // No code panics while it holds the lock, so the data is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Session {
    home: Arc<LocalSessionManager>,
    owner: Owner,
    /// Zero before the session is admitted.
    places: usize,
    /// How many requests in flight have each id: a client may use an id twice.
    in_flight: HashMap<Option<RequestId>, usize>,
    /// The session's position among the idle ones, the lowest first to end.
    idle_since: Option<u64>,
}

#[derive(Default)]
struct SessionTable {
    sessions: HashMap<SessionId, Session>,
    places: usize,
    idle: BTreeMap<u64, SessionId>,
    shares: HashMap<Owner, SessionShare>,
    turn: u64,
}

#[derive(Default)]
struct SessionShare {
    places: usize,
    idle: BTreeMap<u64, SessionId>,
}

impl SessionTable {
    /// The sessions that have to end for one of this owner that takes so many places.
    fn room(
        &self,
        owner: Owner,
        places: usize,
        limits: &Limits,
        identifies_principals: bool,
    ) -> Result<HashSet<SessionId>, Full> {
        // The other half is reserved for callers with a principal.
        let (share, full): (usize, fn(usize) -> Full) = match owner {
            Some(_) => (limits.sessions_per_principal, |limit| Full::OfPrincipal { limit }),
            None if identifies_principals => (limits.sessions / 2, |limit| Full::Anonymous { limit }),
            None => (limits.sessions, |limit| Full::All { limit }),
        };
        if places > share {
            return Err(full(share));
        }
        let (theirs, empty) = (self.shares.get(&owner), BTreeMap::new());
        let mut of_share = theirs.map_or(0, |theirs| theirs.places) + places;
        let mut in_all = self.places + places;
        let their_idle = theirs.map_or(&empty, |theirs| &theirs.idle);
        let mut ended = HashSet::new();
        let mut end = |idle: &BTreeMap<u64, SessionId>, enough: &dyn Fn(usize, usize) -> bool| {
            for id in idle.values() {
                if enough(of_share, in_all) {
                    break;
                }
                let Some(session) = self.sessions.get(id).filter(|_| !ended.contains(id)) else { continue };
                in_all -= session.places;
                if session.owner == owner {
                    of_share -= session.places;
                }
                ended.insert(id.clone());
            }
            enough(of_share, in_all)
        };
        if !end(their_idle, &|of_share, _| of_share <= share) {
            return Err(full(share));
        }
        // A caller without a principal does not end a session of a caller with one.
        let idle = if owner.is_none() { their_idle } else { &self.idle };
        if !end(idle, &|_, in_all| in_all <= limits.sessions) {
            return Err(Full::All { limit: limits.sessions });
        }
        Ok(ended)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Session> {
        self.wake(id);
        let session = self.sessions.remove(id)?;
        self.places -= session.places;
        if let Some(share) = self.shares.get_mut(&session.owner) {
            share.places -= session.places;
            if share.places == 0 {
                self.shares.remove(&session.owner);
            }
        }
        Some(session)
    }

    /// Takes the session off the lists of idle sessions.
    fn wake(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if let Some(turn) = session.idle_since.take() {
            self.idle.remove(&turn);
            if let Some(share) = self.shares.get_mut(&session.owner) {
                share.idle.remove(&turn);
            }
        }
    }

    /// Adds the session to the lists of idle sessions if it has no request in flight.
    fn rest(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.in_flight.is_empty()) else { return };
        self.turn += 1;
        session.idle_since = Some(self.turn);
        self.idle.insert(self.turn, id.clone());
        self.shares.entry(session.owner).or_default().idle.insert(self.turn, id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestServer {
        places: Places,
        limits: Limits,
        identifies: bool,
    }

    impl TestServer {
        fn of(sessions: usize, per_principal: usize) -> Self {
            let limits = Limits::default().with_sessions(sessions, per_principal);
            Self { places: Places::default(), limits, identifies: true }
        }

        /// Opens a session and returns the sessions that ended for it.
        fn open(&self, id: &str, owner: Option<&str>, places: usize) -> Result<Vec<String>, Full> {
            let id: SessionId = id.into();
            self.places.enter(id.clone(), Arc::default());
            let owner = owner.map(Digest::of_principal);
            let admitted = self.places.admit(&id, owner, places, &self.limits, self.identifies);
            match &admitted {
                Ok(_) => self.places.end(&id, None),
                Err(_) => self.places.leave(&id),
            }
            let mut ended: Vec<_> = admitted?.into_iter().map(|evicted| evicted.id.to_string()).collect();
            ended.sort();
            Ok(ended)
        }

        fn call(&self, id: &str, request: i64) -> bool {
            self.places.begin(&id.into(), Some(RequestId::Number(request)))
        }

        fn answer(&self, id: &str, request: i64) {
            self.places.end(&id.into(), Some(RequestId::Number(request)));
        }
    }

    fn none() -> Result<Vec<String>, Full> {
        Ok(vec![])
    }

    fn ended(ids: &[&str]) -> Result<Vec<String>, Full> {
        Ok(ids.iter().map(|id| (*id).to_owned()).collect())
    }

    #[test]
    fn the_session_that_was_not_used_for_the_longest_time_makes_room() {
        let server = TestServer { identifies: false, ..TestServer::of(3, 100) };
        for id in ["a", "b", "c"] {
            assert_eq!(server.open(id, None, 1), none());
        }
        server.places.touch(&"a".into());
        assert_eq!(server.open("d", None, 1), ended(&["b"]));
        assert_eq!(server.open("e", None, 1), ended(&["c"]));
        assert_eq!(server.open("f", None, 1), ended(&["a"]));
        assert_eq!(server.places.count(), 3);
        assert!(!server.call("a", 1), "it has ended");
    }

    #[test]
    fn a_session_with_a_call_in_flight_makes_no_room() {
        let server = TestServer { identifies: false, ..TestServer::of(2, 100) };
        assert_eq!((server.open("a", None, 1), server.open("b", None, 1)), (none(), none()));
        assert!(server.call("a", 1) && server.call("a", 2));
        assert_eq!(server.open("c", None, 1), ended(&["b"]));
        assert!(server.call("c", 1));
        assert_eq!(server.open("d", None, 1), Err(Full::All { limit: 2 }));
        server.answer("a", 1);
        assert_eq!(server.open("d", None, 1), Err(Full::All { limit: 2 }), "one of two is answered");
        server.answer("a", 2);
        assert_eq!(server.open("d", None, 1), ended(&["a"]));
    }

    #[test]
    fn a_principal_has_a_share_and_makes_room_for_itself() {
        let server = TestServer::of(100, 2);
        for (id, owner) in [("a", "ada"), ("b", "ben"), ("c", "ada")] {
            assert_eq!(server.open(id, Some(owner), 1), none());
        }
        assert_eq!(server.open("d", Some("ada"), 1), ended(&["a"]));
        assert!(server.call("c", 1) && server.call("d", 1));
        assert_eq!(server.open("e", Some("ada"), 1), Err(Full::OfPrincipal { limit: 2 }));
        assert_eq!(server.open("f", Some("ben"), 1), none(), "another principal is not affected");
    }

    #[test]
    fn callers_without_a_principal_share_one_half_and_end_no_session_of_one_who_has_one() {
        let server = TestServer::of(4, 3);
        for (id, owner) in [("a", "ada"), ("b", "ada"), ("c", "ada")] {
            assert_eq!(server.open(id, Some(owner), 1), none());
        }
        assert_eq!(server.open("x", None, 1), none());
        assert_eq!(server.open("y", None, 1), ended(&["x"]), "only this session has no principal");
        assert!(server.call("y", 1));
        assert_eq!(server.open("z", None, 1), Err(Full::All { limit: 4 }));
        server.places.leave(&"a".into());
        assert_eq!(server.open("z", None, 1), none());
        assert!(server.call("z", 1));
        assert_eq!(server.open("w", None, 1), Err(Full::Anonymous { limit: 2 }));
        assert_eq!(server.open("d", Some("ben"), 1), ended(&["b"]), "a known principal may end any idle session");
    }

    #[test]
    fn where_no_principals_are_identified_callers_have_all_places() {
        let server = TestServer { identifies: false, ..TestServer::of(4, 1) };
        for id in ["a", "b", "c", "d"] {
            assert_eq!(server.open(id, None, 1), none());
        }
    }

    #[test]
    fn a_large_session_takes_several_places() {
        let server = TestServer { identifies: false, ..TestServer::of(5, 100) };
        assert_eq!((server.open("a", None, 2), server.open("b", None, 2)), (none(), none()));
        assert_eq!(server.open("c", None, 3), ended(&["a"]));
        assert_eq!(server.open("d", None, 6), Err(Full::All { limit: 5 }));
        assert_eq!(server.places.count(), 2, "nothing ends for what does not fit");
        assert_eq!(server.open("e", None, 5), ended(&["b", "c"]));
    }

    #[test]
    fn nothing_is_left_of_sessions_that_have_ended() {
        let server = TestServer::of(8, 4);
        for round in 0..20 {
            for owner in [None, Some("ada"), Some("ben")] {
                let id = format!("{round} {owner:?}");
                let _ = server.open(&id, owner, 1 + round % 3);
                server.call(&id, 1);
                server.call(&id, 1);
                server.answer(&id, 1);
                server.places.touch(&id.as_str().into());
                server.answer(&id, 1);
            }
        }
        let ids: Vec<_> = server.places.lock().sessions.keys().cloned().collect();
        for id in ids {
            server.places.leave(&id);
        }
        let taken = server.places.lock();
        assert_eq!((taken.places, taken.idle.len(), taken.shares.len(), taken.sessions.len()), (0, 0, 0, 0));
    }
}
