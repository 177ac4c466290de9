//! `memlens completions`.

use clap::Args;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::{cli, streams};

/// Arguments of `memlens completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Where they go:
  bash  memlens completions bash > ~/.local/share/bash-completion/completions/memlens
  zsh   memlens completions zsh > ~/.zfunc/_memlens      (with ~/.zfunc in fpath)
  fish  memlens completions fish > ~/.config/fish/completions/memlens.fish")]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// Prints the completions.
pub fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut cli::definition(), "memlens", &mut text);
    streams::write_result(|out| out.write_all(&text))?;
    Ok(0)
}
