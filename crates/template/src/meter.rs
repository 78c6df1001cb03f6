//! What rendering may cost: steps, and bytes that are made.
//!
//! A step is a node, a value, a member or an iteration. Bytes are counted wherever they are made, read or compared, not only in
//! the output: [`BYTES_PER_STEP`] of them are a step. So the limit on steps bounds time and memory together.

use std::rc::Rc;

use skep_bounds::{TEMPLATE_CALLS, TEMPLATE_OUTPUT_BYTES, TEMPLATE_STEPS};

use crate::error::EvaluationError;
use crate::value::Text;

/// How many bytes count as a step.
const BYTES_PER_STEP: u64 = 64;

/// How much rendering a template may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderLimits {
    /// How many steps it may take. Sixty-four bytes that are made, read or compared count as one.
    pub steps: u64,
    /// How large the output may be, in bytes, and every string on the way.
    pub output: usize,
    /// How deep calls of `template` may be nested.
    pub calls: usize,
}

/// Counts what rendering costs.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: RenderLimits,
    /// How many bytes may still be made, if nothing else is done.
    left: u64,
}

/// A text that grows within the limits.
#[derive(Debug)]
pub(crate) struct Sink<'m> {
    bytes: &'m mut Vec<u8>,
    meter: &'m mut Meter,
}

// === impl RenderLimits ===

impl Default for RenderLimits {
    fn default() -> Self {
        Self { steps: TEMPLATE_STEPS, output: TEMPLATE_OUTPUT_BYTES, calls: TEMPLATE_CALLS }
    }
}

// === impl Meter ===

impl Meter {
    pub(crate) fn new(limits: RenderLimits) -> Self {
        Self { limits, left: limits.steps.saturating_mul(BYTES_PER_STEP) }
    }

    /// How deep calls may be nested.
    pub(crate) fn calls(&self) -> usize {
        self.limits.calls
    }

    /// How many steps are left.
    pub(crate) fn steps_left(&self) -> usize {
        usize::try_from(self.left / BYTES_PER_STEP).unwrap_or(usize::MAX)
    }

    pub(crate) fn step(&mut self) -> Result<(), EvaluationError> {
        self.steps(1)
    }

    pub(crate) fn steps(&mut self, count: usize) -> Result<(), EvaluationError> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.spend(count.saturating_mul(BYTES_PER_STEP))
    }

    /// Bytes that are made, read or compared.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<(), EvaluationError> {
        self.spend(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn spend(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.left = self.left.checked_sub(cost).ok_or(EvaluationError::Steps { most: self.limits.steps })?;
        Ok(())
    }

    /// The text that `write` makes.
    pub(crate) fn text<'r>(
        &mut self,
        write: impl FnOnce(&mut Sink<'_>) -> Result<(), EvaluationError>,
    ) -> Result<Text<'r>, EvaluationError> {
        let mut bytes = Vec::new();
        write(&mut Sink::new(&mut bytes, self))?;
        Ok(Text::Made(Rc::from(bytes)))
    }
}

// === impl Sink ===

impl<'m> Sink<'m> {
    pub(crate) fn new(bytes: &'m mut Vec<u8>, meter: &'m mut Meter) -> Self {
        Self { bytes, meter }
    }

    pub(crate) fn meter(&mut self) -> &mut Meter {
        self.meter
    }

    pub(crate) fn write(&mut self, text: impl AsRef<[u8]>) -> Result<(), EvaluationError> {
        let text = text.as_ref();
        self.grow(text.len())?;
        self.bytes.extend_from_slice(text);
        Ok(())
    }

    pub(crate) fn character(&mut self, character: char) -> Result<(), EvaluationError> {
        self.write(character.encode_utf8(&mut [0; 4]))
    }

    /// Writes a byte as two hexadecimal digits.
    pub(crate) fn hexadecimal(&mut self, byte: u8, upper: bool) -> Result<(), EvaluationError> {
        let digit = |number: u8| match number {
            0..=9 => b'0' + number,
            _ if upper => b'A' + number - 10,
            _ => b'a' + number - 10,
        };
        self.write([digit(byte >> 4), digit(byte & 0xf)])
    }

    /// Writes a byte so many times.
    pub(crate) fn repeat(&mut self, byte: u8, count: usize) -> Result<(), EvaluationError> {
        self.grow(count)?;
        self.bytes.extend(std::iter::repeat_n(byte, count));
        Ok(())
    }

    /// Asks for space before it is taken.
    fn grow(&mut self, count: usize) -> Result<(), EvaluationError> {
        let most = self.meter.limits.output;
        if self.bytes.len().saturating_add(count) > most {
            return Err(EvaluationError::Output { most });
        }
        self.meter.bytes(count)
    }
}
