//! Which bytes a masked access touches.

use memlens_types::AccessAttr;

/// The bytes before the first active lane of `operand`, and those of all active lanes; `None` if there are
/// none. An unknown lane size (0) makes the operand count whole when any lane is active.
///
/// `mask` is the whole mask register: an AVX-512 instruction reads as many of its bits as the operand has
/// lanes and ignores those above (Intel SDM volume 1, section 15.6.1, "Opmask Registers").
pub fn active_bytes(operand: AccessAttr, lane_bytes: u32, mask: u64) -> Option<(u64, u32)> {
    let whole = operand.size_bytes();
    if lane_bytes == 0 {
        return (mask != 0).then_some((0, whole));
    }
    let lanes = (whole / lane_bytes).clamp(1, u64::BITS);
    let active = mask & (u64::MAX >> (u64::BITS - lanes));
    let first = active.trailing_zeros();
    (active != 0).then(|| (u64::from(first * lane_bytes), active.count_ones() * lane_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    fn attr(size_bytes: u32) -> AccessAttr {
        AccessAttr::new(AccessKind::Store, size_bytes)
    }

    #[test]
    fn masks_leave_out_lanes() {
        // Eight lanes of four bytes; the second and third are active.
        assert_eq!(active_bytes(attr(32), 4, 0b0110), Some((4, 8)));
        assert_eq!(active_bytes(attr(32), 4, 0xff), Some((0, 32)));
        assert_eq!(active_bytes(attr(32), 4, 0), None);
        // 64 lanes of a byte: all bits of the register.
        assert_eq!(active_bytes(attr(64), 1, u64::MAX), Some((0, 64)));
        // Lanes of unknown size.
        assert_eq!(active_bytes(attr(64), 0, 2), Some((0, 64)));
        assert_eq!(active_bytes(attr(64), 0, 0), None);
    }

    #[test]
    fn bits_above_the_lanes_are_not_active() {
        // 64 bytes of 4 are 16 lanes: bit 16 is the first above them.
        assert_eq!(active_bytes(attr(64), 4, 0xffff_ffff_ffff_0000), None);
        assert_eq!(active_bytes(attr(64), 4, 0xffff_0000_0000_0014), Some((8, 8)));
        // 64 bytes of 8 are 8 lanes.
        assert_eq!(active_bytes(attr(64), 8, 0xff00), None);
    }
}
