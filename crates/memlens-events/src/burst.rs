//! What a burst's words mean: the accesses of a thread while it ran translated code.
//!
//! A burst is a sequence of executed *blocks*. Each begins with a word whose upper 33 bits are set, [`block_word`], and goes
//! on with the addresses that the block stored. On AArch64 the highest byte of these may be a tag ([`without_tag`]). Which accesses those are, the block's definition says: a list of
//! [`Reference`]s in program order. Only those with [`Source::Word`] take a word; the others' addresses follow from
//! it, or are always the same.
//!
//! A block has side exits. How far it got, the number of its words tells: the first reference behind a side exit
//! always takes a word, so that all references before the next missing word have happened. Where references were left out
//! ([`Source::LeftOut`]), side exits are told, too ([`Use::WayOut`]): which was taken, the next block's begin tells.

/// Words of a reference in a definition.
pub const REFERENCE_WORDS: usize = 3;

/// The most words that one execution of a block stores, its first included.
pub const MAX_BLOCK_WORDS: usize = 128;

/// The word that a block's execution begins with.
pub const fn block_word(id: u32) -> u64 {
    // As a 32-bit value sign-extended: that is how it is stored.
    0xffff_ffff_8000_0000 | id as u64
}

/// Which block begins with this word; None: it is an address.
pub const fn block_of(word: u64) -> Option<u32> {
    if word >> 31 == u64::MAX >> 31 { Some(word as u32 & 0x7fff_ffff) } else { None }
}

/// An address that was stored, as memory has it: the processor looks at no tag in the highest byte (Arm Architecture Reference Manual for
/// A-profile, D8.8, top-byte ignore, which Linux lets programs have). An address of a program's on x86-64 has zeros there.
pub const fn without_tag(address: u64) -> u64 {
    address & u64::MAX >> 8
}

/// How an access's address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The block's next word is it.
    Word,
    /// It is this word of the block's (0: the first address) plus a distance in bytes.
    Near {
        /// Which word.
        word: u16,
        /// The distance.
        distance: i64,
    },
    /// It is always this.
    Fixed(u64),
    /// So far from the thread's `fs` base.
    Thread(i64),
    /// It is not known: a gather's or a scatter's relative to a segment, or one with a short register.
    Unknown,
    /// It was not asked for: relative to a register of the stack alone, or fixed.
    LeftOut,
}

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// No access: the word is the number of elements that the instruction's accesses before it had.
    Count,
    /// A load.
    Read,
    /// A store.
    Write,
    /// Both.
    Both,
    /// Both, as one: the processor does nothing else of the thread's with memory meanwhile (x86-64's locked instructions).
    Locked,
    /// Neither: a prefetch, whose address may be any number; of one that took a word the top byte is cleared, as of the elements
    /// of gathers and scatters.
    Prefetch,
    /// No access: instead of going on from here, execution may have gone on at the reference's `pc`.
    WayOut,
    /// No access: of the instruction's accesses that follow, the elements of a gather or scatter, those happen whose bit is set in
    /// the word, the first being bit 0.
    Mask,
}

/// One memory operand of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Address of its instruction.
    pub pc: u64,
    /// Which memory operand of the instruction, from 0.
    pub operand: u8,
    /// What is done there.
    pub used: Use,
    /// Bytes of one element.
    pub size_bytes: u16,
    /// How its address is known.
    pub source: Source,
}

impl Reference {
    /// As it is sent.
    pub fn words(&self) -> [u64; REFERENCE_WORDS] {
        let used = match self.used {
            Use::Count => 0u64,
            Use::Read => 1,
            Use::Write => 2,
            Use::Both => 3,
            Use::Prefetch => 4,
            Use::WayOut => 5,
            Use::Mask => 6,
            Use::Locked => 7,
        };
        let (tag, word, value) = match self.source {
            Source::Word => (0u64, 0, 0),
            Source::Near { word, distance } => (1, word, distance as u64),
            Source::Fixed(address) => (2, 0, address),
            Source::Thread(distance) => (3, 0, distance as u64),
            Source::Unknown => (4, 0, 0),
            Source::LeftOut => (5, 0, 0),
        };
        let what = u64::from(self.size_bytes)
            | used << 16
            | tag << 20
            | u64::from(self.operand) << 24
            | u64::from(word) << 32;
        [self.pc, what, value]
    }

    /// From its words; None: damaged.
    pub fn of([pc, what, value]: [u64; REFERENCE_WORDS]) -> Option<Self> {
        let used = match what >> 16 & 15 {
            0 => Use::Count,
            1 => Use::Read,
            2 => Use::Write,
            3 => Use::Both,
            4 => Use::Prefetch,
            5 => Use::WayOut,
            6 => Use::Mask,
            7 => Use::Locked,
            _ => return None,
        };
        let source = match what >> 20 & 15 {
            0 => Source::Word,
            1 => Source::Near { word: (what >> 32) as u16, distance: value as i64 },
            2 => Source::Fixed(value),
            3 => Source::Thread(value as i64),
            4 => Source::Unknown,
            5 => Source::LeftOut,
            _ => return None,
        };
        Some(Self { pc, operand: (what >> 24) as u8, used, size_bytes: what as u16, source })
    }

    /// Whether it takes a word of its block.
    pub fn takes_word(&self) -> bool {
        self.source == Source::Word
    }
}

/// Why a burst ended. Its number is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// It had as many accesses as it should.
    Length = 0,
    /// A system call comes next.
    SystemCall = 1,
    /// An instruction that is left to the native code.
    Instruction = 2,
    /// Code that is not translated: it cannot be read, or nothing can be put near it.
    Code = 3,
    /// Translation took too long already.
    Cost = 4,
    /// Another thread was translating.
    Busy = 5,
    /// The room for translations is used up.
    Full = 6,
    /// A fault: the program's own handler gets it.
    Fault = 7,
}

impl End {
    /// All of them, by number.
    pub const ALL: [Self; 8] = [
        Self::Length,
        Self::SystemCall,
        Self::Instruction,
        Self::Code,
        Self::Cost,
        Self::Busy,
        Self::Full,
        Self::Fault,
    ];

    /// Whether it was for the code that comes next, however long the burst was.
    pub fn is_at_code(self) -> bool {
        matches!(self, Self::SystemCall | Self::Instruction | Self::Code | Self::Fault)
    }

    /// The end with this number.
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_comes_out_as_it_went_in() {
        let sources = [
            Source::Word,
            Source::Near { word: 300, distance: -8 },
            Source::Fixed(0x7fff_1234_5678),
            Source::Thread(-64),
            Source::Unknown,
            Source::LeftOut,
        ];
        for source in sources {
            for used in [
                Use::Count,
                Use::Read,
                Use::Write,
                Use::Both,
                Use::Prefetch,
                Use::WayOut,
                Use::Mask,
                Use::Locked,
            ] {
                let reference = Reference { pc: 0x5555_0000_1234, operand: 1, used, size_bytes: 512, source };
                assert_eq!(Reference::of(reference.words()), Some(reference));
            }
        }
        assert_eq!(Reference::of([0, 15 << 16, 0]), None);
    }

    #[test]
    fn blocks_and_addresses_are_told_apart() {
        assert_eq!(block_of(block_word(77)), Some(77));
        assert_eq!(block_of(0x7fff_ffff_ffff), None);
        let tagged = 0xffff << 48 & !(0xff << 48) | 0x7fff_ffff_fff0;
        assert_eq!((block_of(tagged), without_tag(tagged)), (None, 0x7fff_ffff_fff0));
        assert!(End::ALL.iter().enumerate().all(|(number, &end)| End::of(number as u64) == Some(end)));
    }
}
