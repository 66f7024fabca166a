//! Emits classic BPF backwards, last instruction first.
//!
//! The hard fact: jumps only go forward, and a conditional one reaches 255 instructions. Written
//! backwards, every target already exists and its distance is known when the jump is emitted, so
//! equal code can be shared and a target out of reach is brought near at once by an unconditional
//! jump, whose offset has 32 bits.

use std::collections::HashMap;

use super::policy::FilterAction;

// Operation codes of linux/filter.h: class | operation or size | mode or operand.
pub(super) const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(super) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(super) const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(super) const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// How far a conditional jump reaches.
const REACH: usize = u8::MAX as usize;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Operation, addressing mode and size.
    pub code: u16,
    /// How many instructions to skip when a comparison holds.
    pub jt: u8,
    /// How many instructions to skip when it does not.
    pub jf: u8,
    /// Constant: an operand, an offset, an answer or the length of an unconditional jump.
    pub k: u32,
}

/// A comparison of the accumulator with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Test {
    /// Equal: BPF_JMP | BPF_JEQ | BPF_K.
    Equal = 0x15,
    /// Greater or equal, unsigned: BPF_JMP | BPF_JGE | BPF_K.
    AtLeast = 0x35,
    /// Some bit of the constant is set: BPF_JMP | BPF_JSET | BPF_K.
    AnyBit = 0x45,
}

/// A place in the program that can be continued at: its distance from the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CodeLabel(usize);

/// A program being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The instructions, last one first.
    reversed: Vec<Instruction>,
    /// What was emitted already, as it was asked for: code, constant, and where it continues.
    emitted: HashMap<(u16, u32, [Option<CodeLabel>; 2]), CodeLabel>,
    /// The latest jump made to a node that was out of reach.
    stand_ins: HashMap<CodeLabel, CodeLabel>,
}

impl Assembler {
    /// Ends the program with `answer`.
    pub(super) fn answer(&mut self, answer: FilterAction) -> CodeLabel {
        self.emit(RETURN, answer.action(), [None, None])
    }

    /// Loads the 32-bit word at `offset` of `struct seccomp_data` into the accumulator, then
    /// continues at `next`.
    pub(super) fn load(&mut self, offset: u32, next: CodeLabel) -> CodeLabel {
        self.emit(LOAD, offset, [Some(next), None])
    }

    /// Keeps only the bits of `mask` in the accumulator, then continues at `next`.
    pub(super) fn and(&mut self, mask: u32, next: CodeLabel) -> CodeLabel {
        self.emit(AND, mask, [Some(next), None])
    }

    /// Continues at `hit` if the accumulator passes `test` against `value`, else at `miss`.
    pub(super) fn branch(&mut self, test: Test, value: u32, hit: CodeLabel, miss: CodeLabel) -> CodeLabel {
        self.emit(test as u16, value, [Some(hit), Some(miss)])
    }

    /// The program, starting with what was emitted last.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }

    fn emit(&mut self, code: u16, k: u32, next: [Option<CodeLabel>; 2]) -> CodeLabel {
        if let Some(&node) = self.emitted.get(&(code, k, next)) {
            return node;
        }
        let (jt, jf) = match next {
            [Some(hit), Some(miss)] => {
                // One short of the full reach: bringing `miss` near may put one more instruction in
                // between.
                let hit = self.near(hit, REACH - 1);
                let miss = self.near(miss, REACH);
                (self.distance(hit) as u8, self.distance(miss) as u8)
            }
            [Some(only), None] => {
                self.near(only, 0);
                (0, 0)
            }
            _ => (0, 0),
        };
        let node = self.push(Instruction { code, jt, jf, k });
        self.emitted.insert((code, k, next), node);
        node
    }

    /// `node` itself, or a jump to it, at most `reach` instructions after the one emitted next.
    fn near(&mut self, node: CodeLabel, reach: usize) -> CodeLabel {
        if self.distance(node) <= reach {
            return node;
        }
        if let Some(&stand_in) = self.stand_ins.get(&node)
            && self.distance(stand_in) <= reach
        {
            return stand_in;
        }
        let k = self.distance(node) as u32;
        let stand_in = self.push(Instruction { code: JUMP, jt: 0, jf: 0, k });
        self.stand_ins.insert(node, stand_in);
        stand_in
    }

    /// How many instructions the one emitted next would skip to reach `node`.
    fn distance(&self, node: CodeLabel) -> usize {
        self.reversed.len() - 1 - node.0
    }

    fn push(&mut self, instruction: Instruction) -> CodeLabel {
        self.reversed.push(instruction);
        CodeLabel(self.reversed.len() - 1)
    }
}
