// Another program's configuration from outside, as every program that it could be of.
#include "weft/plan/imports/import.h"

#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/plan/imports/config_entry.h"

namespace weft {

void fuzz_import(Bytes input) {
  using plan::ImportKind;
  const std::string_view text = text_of(input);
  for (const auto kind : {std::optional<ImportKind>(), std::optional(ImportKind::megatron)}) {
    expect_errors_only([&] {
      const plan::Import import = plan::import_config(text, "theirs", {.kind = kind});
      if (import.keys.empty() || import.recipe.empty()) std::abort();
    });
  }
}

}  // namespace weft
