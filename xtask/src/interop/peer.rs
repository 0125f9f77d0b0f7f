//! Who the peers are: their names, their versions, and how they are started.

use std::{fmt, process::Command};

use super::Interop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Suite,
    TypeScript,
    TypeScriptLegacy,
    Python,
    PythonLegacy,
    Mcpdo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Stdio,
}

/// What a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    Legacy,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Suite => "the conformance suite",
            Self::TypeScript | Self::TypeScriptLegacy => "the TypeScript SDK's client",
            Self::Python | Self::PythonLegacy => "the Python SDK's client",
            Self::Mcpdo => "mcpdo, of the Inspector",
        }
    }

    /// The version that is pinned, which is the one that is installed.
    pub(super) fn version(self, interop: &Interop) -> Result<String, String> {
        match self {
            Self::Suite => interop.npm.version("@modelcontextprotocol/conformance"),
            Self::TypeScript => interop.npm.version("@modelcontextprotocol/client"),
            Self::TypeScriptLegacy => interop.npm.version("sdk-legacy"),
            Self::Mcpdo => interop.npm.version("@modelcontextprotocol/inspector"),
            Self::Python => interop.venvs()[0].version("mcp"),
            Self::PythonLegacy => interop.venvs()[1].version("mcp"),
        }
    }

    /// A script of ours, run with what is installed for the peer.
    pub(super) fn command(self, interop: &Interop, script: &str) -> Command {
        let [modern, legacy] = interop.venvs();
        let mut command = match self {
            Self::Suite | Self::TypeScript | Self::TypeScriptLegacy | Self::Mcpdo => interop.npm.node(),
            Self::Python => modern.python(),
            Self::PythonLegacy => legacy.python(),
        };
        command.arg(interop.folder.join(script));
        command
    }
}

impl Era {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    /// The revision of the protocol.
    pub(super) fn revision(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Stdio => "stdio",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
