// The rules of docs/ARCHITECTURE.md as functions on the text of a file: each returns what breaks them and what to do.
#pragma once
#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/source_text.h"

namespace weft::architecture {

struct Violation {
  std::string file;
  int line = 0;
  std::string what;  // and what to do

  std::string to_string() const { return fmt::format("{}:{}: {}", file, line, what); }
};
using Violations = std::vector<Violation>;

inline std::string_view kTable = "tests/architecture/rules.h";

// What each folder of src/weft may include directly; what those may include, it may too.
// docs/ARCHITECTURE.md draws the same picture.
inline const std::map<std::string, std::vector<std::string>, std::less<>>& folder_table() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> table = {
      {"base", {}},
      {"tensor", {"base"}},
      {"kernels", {"tensor"}},
      {"comm", {"tensor"}},
      {"autograd", {"kernels"}},
      {"parallel", {"autograd", "comm"}},
      {"nn", {"parallel"}},
      {"models", {"nn"}},
      {"formats", {"tensor"}},
      {"text", {"base"}},
      {"optim", {"parallel"}},
      {"data", {"text"}},
      {"checkpoint", {"formats", "nn"}},
      {"pretrained", {"models", "formats", "text", "checkpoint"}},
      {"train", {"optim", "data", "pretrained"}},
      {"serve", {"pretrained"}},
      {"rollout", {"train", "serve"}},
      {"plan", {"rollout"}},
  };
  return table;
}

// Everything that `folder` may include, itself among it.
inline std::set<std::string, std::less<>> reachable_from(const std::string& folder) {
  std::set<std::string, std::less<>> reached;
  std::vector<std::string> open = {folder};
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    if (!reached.insert(next).second) continue;
    if (const auto entry = folder_table().find(next); entry != folder_table().end()) {
      open.insert(open.end(), entry->second.begin(), entry->second.end());
    }
  }
  return reached;
}

// A header of another project that belongs behind an interface: only files whose path begins so may include it.
struct GuardedHeader {
  std::string_view prefix;
  std::vector<std::string_view> allowed;
  std::string_view instead;
};

inline const std::vector<GuardedHeader>& guarded_headers() {
  static const std::vector<std::string_view> cuda = {"src/weft/kernels/cuda/", "src/weft/tensor/cuda/",
                                                     "src/weft/comm/nccl/"};
  static const std::vector<std::string_view> simd = {"src/weft/kernels/cpu/", "src/weft/comm/shared/"};
  static const std::vector<GuardedHeader> headers = {
      {"cuda", cuda, "call the Kernels table, Stream or Device"},
      {"cublas", cuda, "call the Kernels table"},
      {"cudnn", cuda, "call the Kernels table"},
      {"cub/", cuda, "call the Kernels table"},
      {"nccl.h", {"src/weft/comm/nccl/"}, "take a Communicator"},
      {"mpi.h", {"src/weft/comm/mpi/"}, "take a Communicator"},
      {"hwy/", simd, "call the Kernels table"},
      {"CLI/", {"apps/"}, "keep command lines in apps/weft"},
      {"boost/", {"src/weft/serve/http/"}, "use http::Server and http::Exchange"},
      {"openssl/",
       {"src/weft/serve/", "tests/serve/"},
       "TLS is the server's; digests of files are in base/checksum.h"},
      {"unicode/", {"src/weft/text/unicode.cpp"}, "call weft/text/unicode.h"},
      {"yaml.h",
       {"src/weft/plan/imports/read_yaml.cpp"},
       "call read_yaml_config of weft/plan/imports/config_entry.h"},
      {"pcre2.h", {"src/weft/text/regex.cpp"}, "use Regex of weft/text/regex.h"},
      {"regex", {}, "std::regex overflows the stack on long input"},
      {"iostream", {}, "print with fmt"},
  };
  return headers;
}

inline bool begins_with_any(std::string_view path, const std::vector<std::string_view>& prefixes) {
  for (std::string_view prefix : prefixes) {
    if (path.starts_with(prefix)) return true;
  }
  return false;
}

// The folder below src/weft that a path or an include lies in; empty when there is none.
inline std::string folder_below(std::string_view path, std::string_view root) {
  if (!path.starts_with(root)) return {};
  path.remove_prefix(root.size());
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, slash));
}

// `weft/kernels/cpu/simd.h` is private to kernels/cpu: a backend is what its table offers, nothing else.
inline bool is_private_to_another_backend(std::string_view path, std::string_view include) {
  if (include == "weft/kernels/cpu/peak.h") return false;  // measures the machine; no part of the table
  const std::string backend = folder_below(include, "weft/kernels/");
  return !backend.empty() && !path.starts_with("src/weft/kernels/" + backend + "/");
}

inline Violations check_own_include(const std::string& path, const Include& include) {
  const auto violation = [&](std::string what) { return Violations{{path, include.line, std::move(what)}}; };
  const std::string to = folder_below(include.name, "weft/");
  const bool app = path.starts_with("apps/");
  if (!include.name.starts_with("weft/")) {
    if (app) return {};  // its own header, beside it
    return violation(fmt::format("\"{}\" is not a path from src/; write \"weft/...\"", include.name));
  }
  if (to.empty()) return violation(fmt::format("\"{}\" lies in no folder of src/weft", include.name));
  if (!folder_table().contains(to)) {
    return violation(fmt::format("folder '{}' is not in the table of {}", to, kTable));
  }
  if (is_private_to_another_backend(path, include.name)) {
    return violation(fmt::format("\"{}\" is private to its backend; call the Kernels table of weft/kernels/kernels.h",
                                 include.name));
  }
  if (app) return {};
  const std::string from = folder_below(path, "src/weft/");
  if (!folder_table().contains(from)) {
    return violation(
        fmt::format("folder '{}' is not in the table of {}; add it there and to docs/ARCHITECTURE.md", from, kTable));
  }
  if (!reachable_from(from).contains(to)) {
    return violation(
        fmt::format("{}/ may not include {}/; move the code down, or pass what it needs from above", from, to));
  }
  return {};
}

inline const GuardedHeader* guard_of(std::string_view name) {
  for (const GuardedHeader& header : guarded_headers()) {
    if (name.starts_with(header.prefix)) return &header;
  }
  return nullptr;
}

// `path` is relative to the repository: src/weft/nn/linear.h.
inline Violations check_includes(const std::string& path, std::string_view text) {
  Violations found;
  for (const Include& include : includes_of(text)) {
    if (const GuardedHeader* guard = guard_of(include.name)) {
      if (!begins_with_any(path, guard->allowed)) {
        found.push_back(
            {path, include.line, fmt::format("<{}> does not belong here; {}", include.name, guard->instead)});
      }
    } else if (include.quoted) {
      const Violations own = check_own_include(path, include);
      found.insert(found.end(), own.begin(), own.end());
    }
  }
  return found;
}

// A model is written for one rank: how it is cut stands beside it, in parallel/.
inline Violations check_no_strategy(const std::string& path, std::string_view text) {
  static const std::set<std::string, std::less<>> words = {
      "tp", "dp", "pp", "cp", "ep", "ddp", "fsdp", "hsdp", "pipeline", "ulysses", "mesh", "communicator", "shard"};
  static const std::vector<std::string_view> phrases = {
      "_tensor_parallel_", "_data_parallel_",  "_context_parallel_", "_sequence_parallel_",
      "_expert_parallel_", "_all_reduce_",     "_all_to_all_",       "_all_gather_",
      "_reduce_scatter_",  "_ring_attention_", "_zero_stage_",       "_zero1_",
      "_zero2_",           "_zero3_"};
  Violations found;
  for (const Identifier& identifier : identifiers_of(text)) {
    const std::vector<std::string> parts = words_of(identifier.name);
    std::string joined = "_";
    for (const std::string& part : parts) joined += part + "_";
    bool named = false;
    for (const std::string& part : parts) named = named || words.contains(part);
    for (std::string_view phrase : phrases) named = named || joined.find(phrase) != std::string::npos;
    if (named) {
      found.push_back({path, identifier.line,
                       fmt::format("'{}' names a parallel strategy inside a model; say it in src/weft/parallel",
                                   identifier.name)});
    }
  }
  return found;
}

// Tests of devices are built for cards too, where the emulator is not: one header names it.
inline Violations check_is_for_cards_too(const std::string& path, std::string_view text) {
  Violations found;
  for (const Identifier& identifier : identifiers_of(text))
    if (identifier.name == "emulated" || identifier.name == "setenv")
      found.push_back({path, identifier.line,
                       fmt::format("'{}' is for the emulator alone; see tests/cuda/emulation.h", identifier.name)});
  return found;
}

// The first line says what the file offers; a header has its guard; a file stays small enough to read.
inline Violations check_shape_of_file(const std::string& path, std::string_view text) {
  Violations found;
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.empty() || !lines[0].starts_with("// ") || lines[0].size() < 12) {
    found.push_back({path, 1, "the first line must be a // comment that says in one sentence what the file offers"});
  }
  const bool is_read_per_target = path.ends_with("-inl.h");  // Highway includes these once for each instruction set
  if (path.ends_with(".h") && !is_read_per_target && text.find("#pragma once") == std::string_view::npos) {
    found.push_back({path, 1, "a header needs #pragma once"});
  }
  const size_t limit = path.starts_with("examples/") ? 100 : path.find("/kernels/") != std::string::npos ? 800 : 500;
  if (lines.size() > limit) {
    found.push_back(
        {path, int(limit) + 1,
         fmt::format("{} lines, {} allowed; find the two things in the file and part them", lines.size(), limit)});
  }
  return found;
}

// `places` are folders of somebody's machine, such as the one this checkout lies in.
inline Violations check_no_absolute_path(const std::string& path, std::string_view text,
                                         const std::vector<std::string>& places) {
  Violations found;
  const std::vector<std::string_view> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const std::string& place : places) {
      const size_t at = lines[i].find(place);
      const bool inside_a_longer_path = at != std::string_view::npos && at > 0 && is_path_character(lines[i][at - 1]);
      if (at == std::string_view::npos || inside_a_longer_path) continue;
      found.push_back(
          {path, int(i) + 1,
           fmt::format("'{}' is a path of one machine; take it as an argument or make it relative", place)});
    }
  }
  return found;
}

inline Violations check_line_count(const std::string& path, std::string_view text, size_t limit) {
  const size_t lines = lines_of(text).size();
  if (lines <= limit) return {};
  return {
      {path, int(limit) + 1, fmt::format("{} lines, {} allowed; keep the map and move detail out", lines, limit)}};
}

}  // namespace weft::architecture
