// Import: another program's training configuration, key by key, and the recipe that it becomes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/toml.h"

namespace weft::plan {

enum class ImportKind : uint8_t { deepspeed, megatron, nanotron, picotron, accelerate };
std::string_view name_of(ImportKind kind);   // as --from has it
std::string_view title_of(ImportKind kind);  // as people call the program
std::optional<ImportKind> import_kind(std::string_view name);

// What becomes of a key.
enum class Fate : uint8_t {
  taken,           // as keys of the recipe
  same,            // weft does so by itself
  not_needed,      // weft has nothing that it would set
  no_counterpart,  // weft cannot do it, or does it in another way
  open,            // its value is not in the file
  unknown,         // the program has no such key, or a newer version than this table
};
std::string_view name_of(Fate fate);

struct ImportedKey {
  std::string key, value;
  int line = 0;  // 0: the format does not say
  Fate fate = Fate::unknown;
  std::string says;  // "mesh.tp = 8", or why
};

// A default of the program that differs from weft's, so that the recipe has to say it.
struct ImpliedKey {
  std::string key, value, says;
};

// What the file could not know and a person has to write.
struct OpenKey {
  std::string key, says;
};

struct Import {
  ImportKind kind = ImportKind::deepspeed;
  std::vector<ImportedKey> keys;  // every key of the file once, in its order
  std::vector<ImpliedKey> implied;
  std::vector<OpenKey> open;
  std::string recipe;   // TOML
  std::string refusal;  // why `weft train` would not take it as it is; empty: it would
};

struct ImportOptions {
  std::optional<ImportKind> kind;  // none: recognised by the text
  std::string model;               // a preset or a saved model, where the file describes none
  std::string data = "data.txt";   // what the recipe trains on
  int num_devices = 0;             // 0: what the file says
};

// `text` may come from anywhere; throws UsageError "SOURCE, line L: what is wrong" when it is not of its format.
Import import_config(std::string_view text, const std::string& source, const ImportOptions& options = {});

}  // namespace weft::plan
