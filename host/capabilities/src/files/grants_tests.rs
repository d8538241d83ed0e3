use super::*;

/// procfs below a granted folder, and no name that is protected: what a second procfs is.
#[test]
fn an_interface_of_the_kernel_is_never_opened_whatever_its_name() {
    for resolution in [PathResolution::Kernel, PathResolution::Portable] {
        let folders = FolderHandles::new(ProtectedPaths::default()).with_resolution(resolution);
        let root = folders.open_folder(Path::new("/"), Path::new("/nowhere")).unwrap();
        let open = |path: &str| root.open(Path::new(path), OFlags::RDONLY, FileAccess::Read).map(drop);
        for path in ["proc/meminfo", "proc/sys/kernel/ostype", "proc", "sys/kernel"] {
            assert_eq!(open(path), Err(Errno::ACCESS), "{path}");
            let inside = root.beneath().open_inside(Path::new(path), OFlags::RDONLY, false);
            assert_eq!(inside.map(drop), Err(Errno::XDEV), "{path}");
        }
        assert_eq!(open("etc/passwd"), Ok(()));
        let other_names = folders.protected.other_names(Path::new("/"), false);
        assert!(other_names.contains(&PathBuf::from("/proc")), "{other_names:?}");
    }
}
