//! What the kernel is set to do about transparent huge pages (Documentation/admin-guide/mm/transhuge.rst).

use std::fs;
use std::path::Path;

/// Pages of 2 MiB that the system keeps for programs that ask for them (Documentation/admin-guide/mm/hugetlbpage.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedPages {
    /// Those that nobody has been promised yet.
    pub free: u64,
}

impl ReservedPages {
    /// Reads the system's pool; a kernel without one has no pages.
    pub fn of_this_system() -> Self {
        Self::in_folder(Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB"))
    }

    fn in_folder(folder: &Path) -> Self {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let free = number("free_hugepages").unwrap_or(0);
        Self { free: free.saturating_sub(number("resv_hugepages").unwrap_or(0)) }
    }

    /// Their bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free.saturating_mul(memlens_placement::HUGE_PAGE_BYTES)
    }
}

/// When anonymous memory gets huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Always.
    Always,
    /// Where the program asks for them.
    Madvise,
    /// Never.
    Never,
    /// The kernel has none.
    Missing,
}

/// The kernel's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// When anonymous memory gets them.
    pub setting: Setting,
    /// Whether a page fault may wait until one is free: not if it never or only later makes room.
    pub makes_room_at_fault: bool,
    /// Whether this process and its children are excluded (prctl(2), `PR_SET_THP_DISABLE`).
    pub is_disabled_here: bool,
}

impl HugePages {
    /// Reads the settings.
    pub fn of_this_system() -> Self {
        const PR_GET_THP_DISABLE: libc::c_int = 42;
        // SAFETY: the call only asks.
        let disabled = unsafe { libc::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) };
        Self {
            is_disabled_here: disabled > 0,
            ..Self::in_folder(Path::new("/sys/kernel/mm/transparent_hugepage"))
        }
    }

    fn in_folder(folder: &Path) -> Self {
        let chosen = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
            word.map(str::to_owned)
        };
        // Kernels from 6.8 on have settings for each size; the largest one may or may not follow the global one.
        let of_size = chosen("hugepages-2048kB/enabled").filter(|word| word != "inherit");
        let setting = match of_size.or_else(|| chosen("enabled")).as_deref() {
            Some("always") => Setting::Always,
            Some("madvise") => Setting::Madvise,
            Some(_) => Setting::Never,
            None => Setting::Missing,
        };
        let defrag = chosen("defrag").unwrap_or_default();
        let makes_room_at_fault = matches!(defrag.as_str(), "always" | "madvise" | "defer+madvise");
        Self { setting, makes_room_at_fault, is_disabled_here: false }
    }

    /// What stands in the way of huge pages, and how to set it; None if nothing does.
    pub fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self { setting: Setting::Missing, .. } => {
                Some("this kernel has no transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)")
            }
            Self { setting: Setting::Never, .. } => Some(
                "transparent huge pages are switched off; allow them to programs that ask: \
                 echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            Self { is_disabled_here: true, .. } => Some(
                "transparent huge pages are switched off for this process and its children \
                 (PR_SET_THP_DISABLE): start memlens from another shell or container",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_pages_are_not_free() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let read = || ReservedPages::in_folder(folder.path());
        assert_eq!(read(), ReservedPages::default());
        fs::write(folder.path().join("free_hugepages"), "8\n").expect("written");
        assert_eq!(read().free_bytes(), 16 << 20);
        fs::write(folder.path().join("resv_hugepages"), "3\n").expect("written");
        assert_eq!(read().free, 5);
    }

    #[test]
    fn settings_are_read_as_the_kernel_writes_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let read = || HugePages::in_folder(folder.path());
        assert_eq!(read().setting, Setting::Missing);
        assert!(read().obstacle().is_some_and(|text| text.contains("CONFIG_")));
        for (text, setting) in [
            ("[always] madvise never\n", Setting::Always),
            ("always [madvise] never\n", Setting::Madvise),
            ("always madvise [never]\n", Setting::Never),
        ] {
            fs::write(folder.path().join("enabled"), text).expect("written");
            assert_eq!(read().setting, setting);
            assert_eq!(read().obstacle().is_some(), setting == Setting::Never);
        }
        fs::create_dir(folder.path().join("hugepages-2048kB")).expect("made");
        for (text, setting) in [
            ("always [inherit] madvise never", Setting::Never),
            ("[always] inherit madvise never", Setting::Always),
        ] {
            fs::write(folder.path().join("hugepages-2048kB/enabled"), text).expect("written");
            assert_eq!(read().setting, setting);
        }
        fs::write(folder.path().join("defrag"), "always defer [defer+madvise] madvise never")
            .expect("written");
        assert!(read().makes_room_at_fault);
        assert!(HugePages { is_disabled_here: true, ..read() }.obstacle().is_some());
    }
}
