//! The peers: their names, their versions, and how they are started.

use std::{fmt, fs, path::Path, process::Command};

use super::Interop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Suite,
    TypeScript,
    TypeScriptLegacy,
    /// The TypeScript package of the extension for tasks.
    ExtTasks,
    Python,
    PythonLegacy,
    /// FastMCP with `fastmcp-tasks`, in Python.
    FastMcp,
    Mcpdo,
    Rmcp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Stdio,
}

/// The era that a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    Legacy,
}

/// The side of a pairing that a peer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Peer {
    pub(super) fn name(self, side: Side) -> &'static str {
        match (self, side) {
            (Self::Suite, _) => "the conformance suite",
            (Self::TypeScript | Self::TypeScriptLegacy, Side::Client) => "the TypeScript SDK's client",
            (Self::TypeScript | Self::TypeScriptLegacy, Side::Server) => "the TypeScript SDK's server",
            (Self::ExtTasks, _) => "the TypeScript task client",
            (Self::Python | Self::PythonLegacy, Side::Client) => "the Python SDK's client",
            (Self::Python | Self::PythonLegacy, Side::Server) => "the Python SDK's server",
            (Self::FastMcp, Side::Client) => "FastMCP's task client",
            (Self::FastMcp, Side::Server) => "FastMCP's task server",
            (Self::Mcpdo, _) => "mcpdo, of the Inspector",
            (Self::Rmcp, _) => "rmcp's client",
        }
    }

    /// The name in `interop/servers.json` of a server that is written with this SDK.
    pub(super) fn language(self) -> &'static str {
        match self {
            Self::Python | Self::PythonLegacy => "python",
            Self::FastMcp => "fastmcp",
            _ => "typescript",
        }
    }

    /// The pinned version, which is the installed one.
    pub(super) fn version(self, side: Side, interop: &Interop) -> Result<String, String> {
        match self {
            Self::TypeScript if side == Side::Server => interop.npm.version("@modelcontextprotocol/server"),
            Self::Suite => interop.npm.version("@modelcontextprotocol/conformance"),
            Self::TypeScript => interop.npm.version("@modelcontextprotocol/client"),
            Self::TypeScriptLegacy => interop.npm.version("sdk-legacy"),
            Self::ExtTasks => interop.npm.version("@modelcontextprotocol/ext-tasks"),
            Self::Mcpdo => interop.npm.version("@modelcontextprotocol/inspector"),
            Self::Python => interop.venvs()[0].version("mcp"),
            Self::Rmcp => locked(&interop.folder.join("../Cargo.lock"), "rmcp"),
            Self::PythonLegacy => interop.venvs()[1].version("mcp"),
            Self::FastMcp => interop.venvs()[2].version("fastmcp-tasks"),
        }
    }

    /// A script of ours, run with the packages that are installed for the peer. For rmcp it is a program of ours.
    pub(super) fn command(self, interop: &Interop, script: &str) -> Command {
        let [modern, legacy, fastmcp] = interop.venvs();
        let mut command = match self {
            Self::Suite | Self::TypeScript | Self::TypeScriptLegacy | Self::ExtTasks | Self::Mcpdo => {
                interop.npm.node()
            }
            Self::Python => modern.python(),
            Self::PythonLegacy => legacy.python(),
            Self::FastMcp => fastmcp.python(),
            Self::Rmcp => return Command::new(interop.built.join(script)),
        };
        command.arg(interop.folder.join(script));
        command
    }
}

/// The version of a package in a lock file of cargo.
fn locked(file: &Path, package: &str) -> Result<String, String> {
    let lock = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let entry = lock.split_once(&format!("\nname = \"{package}\"\nversion = \""));
    let version = entry.and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    version.ok_or_else(|| format!("{} does not have {package}", file.display()))
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
