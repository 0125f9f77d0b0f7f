//! Who may read and who may act.

use std::fmt;

use http::{Extensions, request::Parts};
use rounds::Principal;

/// Decides what a visitor may do. Implemented by every `Fn(&Visitor, Permission) -> bool`.
///
/// It is asked again for every request: when an action is offered, and when it is done. It must return quickly; what
/// takes long, such as looking up roles, belongs into the middleware that signs visitors in, which can leave its result
/// in the [extensions](Visitor::extensions).
pub trait Check: Send + Sync + 'static {
    /// Whether the visitor has the permission.
    fn allows(&self, visitor: &Visitor<'_>, permission: Permission) -> bool;
}

impl<F: Fn(&Visitor<'_>, Permission) -> bool + Send + Sync + 'static> Check for F {
    fn allows(&self, visitor: &Visitor<'_>, permission: Permission) -> bool {
        self(visitor, permission)
    }
}

/// What a visitor may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Permission {
    /// See flows with everything that is sealed in their records: arguments, questions, answers and results.
    Read,
    /// Cancel flows and call tools.
    Act,
    /// See and answer a question that is [asked elsewhere](rounds::elsewhere), if its own
    /// [rule](rounds::elsewhere::Approvers) admits the visitor as well. With this permission alone, an approver with a
    /// link sees the question and the arguments of its call, and nothing else.
    Answer,
}

/// The visitor of a page.
#[derive(Clone, Copy)]
pub struct Visitor<'a> {
    extensions: &'a Extensions,
}

impl<'a> Visitor<'a> {
    pub(crate) fn of(head: &'a Parts) -> Self {
        Self { extensions: &head.extensions }
    }

    /// The principal that middleware put into the request.
    pub fn principal(&self) -> Option<&'a Principal> {
        self.extensions.get()
    }

    /// Everything that middleware put into the request.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

impl fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("principal", &self.principal()).finish_non_exhaustive()
    }
}

/// The check of a desk on a loopback address: every process of this machine may do everything.
pub(crate) struct Everyone;

impl Check for Everyone {
    fn allows(&self, _: &Visitor<'_>, _: Permission) -> bool {
        true
    }
}
