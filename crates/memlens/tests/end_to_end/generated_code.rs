//! Programs that write code and run it, in the memory that it is written to.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{compiled, memlens, stderr, stdout, succeeding};

/// Writes functions to memory that can be executed, some behind the others and some over others, and calls them. And
/// writes to a page of code that has run, with a number in each register.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct section { unsigned char *start, *end; };
struct assembler { void *unused; struct section *section; };

__attribute__((noinline)) static void put(struct assembler *a, int byte, int reg) {
  if (reg >= 8) { *a->section->end++ = 0x41; reg -= 8; }
  *a->section->end++ = byte | reg;
}
__attribute__((noinline)) static void load(struct assembler *a, unsigned value) {
  *a->section->end++ = 0xb8;
  memcpy(a->section->end, &value, 4);
  a->section->end += 4;
}

uint64_t before[16], after[16];
unsigned char *code;
extern void write_code(void);
__asm__(".text\n.globl write_code\nwrite_code:\n"
  "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
  "mov before+8(%rip),%rcx\n mov before+16(%rip),%rdx\n mov before+24(%rip),%rbx\n mov before+40(%rip),%rbp\n"
  "mov before+56(%rip),%rdi\n mov before+64(%rip),%r8\n mov before+72(%rip),%r9\n mov before+80(%rip),%r10\n"
  "mov before+88(%rip),%r11\n mov before+96(%rip),%r12\n mov before+104(%rip),%r13\n mov before+112(%rip),%r14\n"
  "mov before+120(%rip),%r15\n mov code(%rip),%rsi\n mov before(%rip),%rax\n jmp 1f\n 1:\n"
  "movb $0x90,(%rsi)\n movb $0x91,2(%rsi)\n jmp 2f\n 2:\n"
  "mov %rax,after(%rip)\n mov %rcx,after+8(%rip)\n mov %rdx,after+16(%rip)\n mov %rbx,after+24(%rip)\n"
  "mov %rbp,after+40(%rip)\n mov %rdi,after+56(%rip)\n mov %r8,after+64(%rip)\n mov %r9,after+72(%rip)\n"
  "mov %r10,after+80(%rip)\n mov %r11,after+88(%rip)\n mov %r12,after+96(%rip)\n mov %r13,after+104(%rip)\n"
  "mov %r14,after+112(%rip)\n mov %r15,after+120(%rip)\n"
  "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

int main(int count, char **words) {
  int rounds = count > 1 ? 200000 : 300;
  code = mmap(0, 1 << 20, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int round = 0; round < 5; round++) {
    code[100] = 0xc3;
    ((void (*)(void))(code + 100))();
    for (int i = 0; i < 16; i++) before[i] = 0x1111111111111111u * i;
    write_code();
    for (int i = 0; i < 16; i++)
      if (i != 4 && i != 6 && before[i] != after[i]) printf("register %d: %lx\n", i, after[i]);
  }
  struct section section = { code, code };
  struct assembler a = { 0, &section };
  unsigned long sum = 0;
  for (int round = 0; round < rounds; round++) {
    if (round % 40 == 0) section.end = code;
    unsigned char *start = section.end;
    for (int reg = 1; reg < 16; reg++) if (reg != 4) put(&a, 0x50, reg);
    load(&a, round * 7);
    for (int reg = 15; reg > 0; reg--) if (reg != 4) put(&a, 0x58, reg);
    put(&a, 0xc3, 0);
    for (int again = 0; again < 10; again++) sum += ((int (*)(void))start)();
  }
  printf("%lu\n", sum);
  return (int)(sum % 100);
}
"#;

/// Records a program; what it said, and how it ended.
fn recorded(folder: &Path, mode: &str, program: &Path, words: &[&str]) -> Output {
    memlens(folder)
        .args(["run", "--quiet", "--force", "--mode", mode, "--out", "p", "--"])
        .arg(program)
        .args(words)
        .output()
        .expect("memlens is there")
}

#[test]
fn generated_code_does_what_it_does_without_us() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for options in [&["-O2"][..], &["-O1", "-fno-omit-frame-pointer"], &["-O0"]] {
        let program = compiled(folder.path(), "program", PROGRAM, options);
        for (mode, words) in [("exact", &[][..]), ("burst", &["long"]), ("sample", &["long"])] {
            let natively = Command::new(&program).args(words).output().expect("runs");
            assert!(!stdout(&natively).contains("register"), "{}", stdout(&natively));
            let output = recorded(folder.path(), mode, &program, words);
            let context = format!("{mode} {options:?}: {}", stderr(&output));
            assert_eq!(stdout(&output), stdout(&natively), "{context}");
            assert_eq!(output.status, natively.status, "{context}");
        }
    }
}

/// Adds an array's numbers in generated code, and writes a name of that for perf if it is told so.
const NAMED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words) {
  unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // xor eax, eax; again: add rax, [rdi]; add rdi, 8; dec rsi; jnz again; ret
  unsigned char bytes[] = { 0x31, 0xc0, 0x48, 0x03, 0x07, 0x48, 0x83, 0xc7, 0x08, 0x48, 0xff, 0xce, 0x75, 0xf4, 0xc3 };
  memcpy(code, bytes, sizeof bytes);
  if (count > 2) {
    char path[100];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *file = fopen(path, "w");
    fprintf(file, "%lx %lx sum of numbers\n", (long)code, (long)sizeof bytes);
    fclose(file);
    puts(path);
  }
  enum { NUMBERS = 1 << 21 };
  long *numbers = malloc(NUMBERS * sizeof *numbers), sum = 0;
  for (long i = 0; i < NUMBERS; i++) numbers[i] = i;
  for (int round = 0; round < atoi(words[1]); round++) sum += ((long (*)(long *, long))code)(numbers, NUMBERS);
  printf("%ld\n", sum);
}
"#;

#[test]
fn names_that_programs_write_for_perf_are_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "program", NAMED, &["-g", "-O1"]);
    for (mode, rounds) in [("exact", "5"), ("burst", "300"), ("sample", "300")] {
        let run = |words: &[&str]| {
            let output = recorded(folder.path(), mode, &program, words);
            assert!(output.status.success(), "{}", stderr(&output));
            (stdout(&output), succeeding(folder.path(), &["report", "p", "--format", "json"]))
        };
        let (_, unnamed) = run(&[rounds]);
        assert!(unnamed.contains("by generated code without names"), "{mode}: {unnamed}");
        assert!(!unnamed.contains("sum of numbers"));
        let (said, named) = run(&[rounds, "named"]);
        fs::remove_file(said.lines().next().expect("a path")).expect("removed");
        assert!(named.contains("sum of numbers"), "{mode}: {named}");
        assert!(!named.contains("by generated code without names"), "{mode}");
        let table = succeeding(folder.path(), &["report", "p", "--by", "function", "--top", "1"]);
        assert!(table.contains("sum of numbers") && table.contains("numbers"), "{mode}: {table}");
    }
}
