// The tables: no entry is missing, since a designated initialiser that is left out would be null.
#include <cstring>

#include "weft/kernels/kernels.h"

namespace weft {
namespace {

class TablesTest : public testing::TestWithParam<const Kernels* (*)()> {};
INSTANTIATE_TEST_SUITE_P(All, TablesTest,
                         testing::Values([] { return &reference_kernels(); }, [] { return &meta_kernels(); },
                                         [] { return &cpu_kernels(); }),
                         [](const auto& test) { return std::string(test.param()->name); });

TEST_P(TablesTest, HasEveryEntry) {
  const Kernels& table = *GetParam()();
  EXPECT_FALSE(table.name.empty());
  // After the name a table is nothing but function pointers.
  const auto* bytes = reinterpret_cast<const std::byte*>(&table);
  for (size_t at = sizeof(table.name); at < sizeof(Kernels); at += sizeof(void*)) {
    void* entry = nullptr;
    std::memcpy(&entry, bytes + at, sizeof entry);
    EXPECT_NE(entry, nullptr) << "entry " << (at - sizeof(table.name)) / sizeof(void*);
  }
}

TEST(NoCudaTest, SaysWhatToDo) {
  try {
    cuda_kernels();
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("--preset cuda"), std::string_view::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
