//! `memlens man`.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::{cli, streams};

/// Arguments of `memlens man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write the pages of all commands into this folder; without it, print the main page
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints or writes the pages.
pub fn man(args: &ManArgs) -> Result<u8, Failure> {
    let Some(folder) = &args.out else {
        let page = clap_mangen::Man::new(cli::definition());
        streams::write_result(|out| page.render(&mut &mut *out))?;
        return Ok(0);
    };
    let place = folder.display().to_string();
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(cli::definition(), folder))
        .map_err(|error| Failure::of_creation(&place, &error))?;
    Ok(0)
}
