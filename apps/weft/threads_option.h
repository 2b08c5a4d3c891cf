// add_threads: --threads, as every command that takes it has it.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::app {

inline void add_threads(CLI::App& command, int& threads, const char* what = "Cores to use; 0: all") {
  constexpr int kMost = 1024;  // of one team, in products: kernels/cpu/matmul.cpp
  command.add_option("--threads", threads, what)->check(CLI::Range(0, kMost));
}

}  // namespace weft::app
