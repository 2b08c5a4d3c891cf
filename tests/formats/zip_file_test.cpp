// Zip archives: stored entries are read; a directory that lies about anything is refused by name.
#include "weft/formats/zip_file.h"

#include <random>

#include "base/temporary_folder.h"
#include "formats/attack.h"
#include "formats/opening_error.h"
#include "formats/zip_bytes.h"

namespace weft {
namespace {

std::string zip_error(const std::string& path, std::string_view content) {
  return opening_error(path, content, [&] {
    const ZipFile file(path);
    for (const ZipEntry& entry : file.entries()) (void)file.bytes(entry);
  });
}

ZipBytes two_entries(ZipBytes::Change change = {}) {
  ZipBytes zip;
  zip.add("b/data.pkl", "pickle");
  zip.add("a", "first", change);
  return zip;
}

// Where its directory begins, behind 30 bytes, a name and a content for each entry; its bytes: 46 and a name; its
// end.
constexpr size_t kDirectory = (30 + 10 + 6) + (30 + 1 + 5), kDirectoryBytes = (46 + 10) + (46 + 1);
constexpr size_t kEnd = kDirectory + kDirectoryBytes;

TEST(ZipFile, EntriesAreReadWithAndWithoutZip64) {
  const TemporaryFolder folder;
  for (const std::string& content : {two_entries().bytes(), two_entries().bytes("a comment"), two_entries().bytes64(),
                                     two_entries({.zip64 = true}).bytes(), two_entries({.zip64 = true}).bytes64()}) {
    ASSERT_EQ(zip_error(folder / "a.zip", content), "opened");
    const ZipFile file(folder / "a.zip");
    ASSERT_EQ(file.entries().size(), 2u);
    EXPECT_EQ(text_of(file.bytes(*file.find("a"))), "first");
    EXPECT_EQ(text_of(file.bytes(*file.find("b/data.pkl"))), "pickle");
    EXPECT_EQ(file.find("b"), nullptr);
  }
  EXPECT_EQ(zip_error(folder / "a.zip", ZipBytes().bytes()), "opened") << "an archive of nothing";
}

std::string with(std::string content, size_t at, char byte) {
  content[at] = byte;
  return content;
}
std::string duplicate() {
  ZipBytes zip;
  zip.add("a", "x");
  zip.add("a", "y");
  return zip.bytes();
}
// The second entry's place is the first one's.
std::string overlapping() {
  ZipBytes zip;
  zip.add("a", "0123456789");
  zip.add("a", "0123456789", {.more_offset = -41});
  return zip.bytes();
}
// The second entry lies in the content of the first.
std::string nested_entries() {
  ZipBytes inner;
  inner.add("c", "xx");
  const std::string local = inner.bytes().substr(0, 30 + 1 + 2);
  ZipBytes zip;
  zip.add("a", local);
  zip.add("c", "xx", {.more_offset = -int64_t(local.size())});
  return zip.bytes();
}

class ZipAttackTest : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(
    Archives, ZipAttackTest,
    testing::Values(
        Attack{"Empty", "", "has no end record"}, Attack{"NoEnd", std::string(100'000, 'x'), "has no end record"},
        Attack{"CommentTooLong", two_entries().bytes("comment") + "x", "has no end record"},
        Attack{"Compressed", two_entries({.method = 8}).bytes(), "entry 'a' is compressed"},
        Attack{"SizesDiffer", two_entries({.more_compressed = -1}).bytes(), "entry 'a' is compressed"},
        Attack{"Encrypted", two_entries({.flags = 1}).bytes(), "entry 'a' is encrypted"},
        Attack{"IntoDirectory", two_entries({.more_size = 1, .more_compressed = 1}).bytes(),
               "reach into the archive's"},
        Attack{"SizeHuge", two_entries({.more_size = 1'000'000'000, .more_compressed = 1'000'000'000}).bytes(),
               "reach"},
        Attack{"SizeWraps", two_entries({.more_size = -10, .more_compressed = -10, .zip64 = true}).bytes(),
               "reach into"},
        Attack{"OffsetElsewhere", two_entries({.more_offset = -1}).bytes(), "is not where the archive's directory"},
        Attack{"OffsetOfAnother", two_entries({.more_offset = -46}).bytes(), "is not where the archive's directory"},
        Attack{"OffsetBeyond", two_entries({.more_offset = 100'000}).bytes(), "but the file has"},
        Attack{"OffsetWraps", two_entries({.more_offset = -100, .zip64 = true}).bytes(), "but the file has"},
        Attack{"Duplicate", duplicate(), "the entry 'a' appears twice"},
        Attack{"SamePlace", overlapping(), "appears twice"},
        Attack{"Nested", nested_entries(), "the entries 'a' and 'c' overlap"},
        Attack{"Directory64Beyond", two_entries().bytes64(2, kDirectoryBytes, UINT64_MAX - 50, kEnd),
               "the directory of the archive"},
        Attack{"Directory64Elsewhere", two_entries().bytes64(2, kDirectoryBytes, 3, kEnd),
               "entry 1 of the archive's directory"},
        Attack{"End64Beyond", two_entries().bytes64(2, kDirectoryBytes, kDirectory, UINT64_MAX - 3),
               "zip64 end record"},
        Attack{"End64Elsewhere", two_entries().bytes64(2, kDirectoryBytes, kDirectory, 0),
               "zip64 end record is damaged"},
        Attack{"ManyEntries", two_entries().bytes64(UINT64_MAX, kDirectoryBytes, kDirectory, kEnd),
               "entries, more than its directory"},
        Attack{"OneMoreEntry", two_entries().bytes64(3, kDirectoryBytes, kDirectory, kEnd),
               "entries, more than its directory"},
        Attack{"DirectoryDamaged", with(two_entries().bytes(), kDirectory, 'x'),
               "entry 1 of the archive's directory is damaged"},
        Attack{"LongName", with(two_entries().bytes(), kDirectory + 29, '\x7f'),
               "entry 1 of the archive's directory is cut"},
        Attack{"NoZip64Field",
               with(with(two_entries({.zip64 = true}).bytes(), kDirectory + 56 + 46 + 1, 9), kDirectory + 56 + 46 + 3,
                    0),
               "has no zip64 field"}),
    [](const auto& test) { return test.param.name; });

TEST_P(ZipAttackTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string message = zip_error(folder / "evil", GetParam().content);
  EXPECT_NE(message.find(folder / "evil"), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

TEST(ZipFile, DamageNeverCrashes) {
  const TemporaryFolder folder;
  for (const std::string& whole : {two_entries().bytes("c"), two_entries({.zip64 = true}).bytes64()}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_NE(zip_error(folder / "a", std::string_view(whole).substr(0, size)), "opened") << size;
    }
    std::mt19937 random(2);
    for (int i = 0; i < 3000; ++i) {
      std::string text = whole;
      for (uint32_t edits = 1 + random() % 3; edits > 0; --edits)
        text[random() % text.size()] = char(random() % 5 ? random() : 255);
      zip_error(folder / "a", text);
    }
  }
}

}  // namespace
}  // namespace weft
