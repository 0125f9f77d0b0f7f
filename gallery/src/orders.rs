//! The orders of a shop, in memory.

use rounds::FlowError;

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) id: &'static str,
    pub(crate) lines: &'static [Line],
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) sku: &'static str,
    pub(crate) price: u32,
    /// Whether it can be put back on a shelf.
    pub(crate) physical: bool,
}

const ORDERS: &[Order] = &[
    Order { id: "ORD-7001", lines: &[Line { sku: "ebook", price: 1500, physical: false }] },
    Order {
        id: "ORD-7002",
        lines: &[
            Line { sku: "mug", price: 1800, physical: true },
            Line { sku: "tote", price: 2400, physical: true },
            Line { sku: "stickers", price: 600, physical: true },
        ],
    },
];

impl Order {
    pub(crate) fn find(id: &str) -> Result<&'static Self, FlowError> {
        let order = ORDERS.iter().find(|order| order.id == id);
        order.ok_or_else(|| FlowError::failed(format!("There is no order {id}.")))
    }

    /// All lines, or only the one with this sku.
    pub(crate) fn part(&self, sku: Option<&str>) -> Result<&'static [Line], FlowError> {
        let Some(sku) = sku else { return Ok(self.lines) };
        let line = self.lines.iter().position(|line| line.sku == sku);
        let line = line.ok_or_else(|| FlowError::failed(format!("There is no {sku} in {}.", self.id)))?;
        Ok(&self.lines[line..=line])
    }
}
