// tools/install-dependencies against made-up dpkg-query, apt-get and sudo: what it installs, retries and says.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string output;
  std::string calls;  // of apt-get and sudo, a line each
};

class InstallDependenciesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "weft-tools-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    for (const char* name : {"env", "sleep", "grep"}) link(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A script in front of everything else: the PATH of a run holds nothing but these.
  void command(const std::string& name, const std::string& body) {
    std::ofstream(folder_ / name) << "#!/bin/sh\ncd " << folder_ << "\n" << body << "\n";
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  void link(const char* name) {
    for (const char* place : {"/bin/", "/usr/bin/"}) {
      std::error_code error;
      if (fs::exists(std::string(place) + name)) fs::create_symlink(std::string(place) + name, folder_ / name, error);
    }
  }
  void with_packages(const std::string& missing) {
    command("dpkg-query",
            "for p; do :; done\n"
            "grep -qx \"$p\" installed 2>/dev/null && { printf installed; exit 0; }\n"
            "case ' " +
                missing + " ' in *\" $p \"*) exit 1;; esac; printf installed");
  }
  void with_user(int id) { command("id", "echo " + std::to_string(id)); }
  // An apt-get that logs its call, fails `failures` installs, and then installs what it is told.
  void with_apt(int failures) {
    command("apt-get",
            "echo \"apt-get $*\" >> calls\n"
            "case \" $* \" in *' install '*) ;; *) exit 0;; esac\n"
            "[ \"$DEBIAN_FRONTEND\" = noninteractive ] || exit 9\n"
            "echo x >> tries; [ \"$(grep -c x tries)\" -gt " +
                std::to_string(failures) +
                " ] || exit 100\n"
                "for p; do echo \"$p\" >> installed; done");
  }

  Outcome run(const std::string& arguments = "") {
    const fs::path log = folder_ / "output";
    const std::string line = "PATH=" + folder_.string() +
                             " WEFT_RETRY_SECONDS=0 /bin/sh " WEFT_SOURCE_DIR "/tools/install-dependencies " +
                             arguments + " >" + log.string() + " 2>&1 </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(log), read(folder_ / "calls")};
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static size_t count(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  fs::path folder_;
};

TEST_F(InstallDependenciesTest, DoesNothingWhenAllIsThere) {
  with_packages("");
  with_user(1000);
  with_apt(0);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.calls, "");
}

TEST_F(InstallDependenciesTest, InstallsOnlyWhatIsMissingAsRoot) {
  with_packages("libfmt-dev ccache");
  with_user(0);
  with_apt(0);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.calls.find("install --no-install-recommends ccache libfmt-dev\n"), std::string::npos)
      << outcome.calls;
  EXPECT_NE(outcome.calls.find(" update"), std::string::npos);
}

TEST_F(InstallDependenciesTest, TriesAgainWhenTheMirrorFails) {
  with_packages("cmake");
  with_user(0);
  with_apt(2);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(count(outcome.calls, " install "), 3u);
}

TEST_F(InstallDependenciesTest, GivesUpWithASentence) {
  with_packages("cmake");
  with_user(0);
  with_apt(99);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(count(outcome.calls, " install "), 4u);
  EXPECT_NE(outcome.output.find("could not install cmake"), std::string::npos) << outcome.output;
}

TEST_F(InstallDependenciesTest, GoesThroughSudo) {
  with_packages("cmake");
  with_user(1000);
  with_apt(0);
  command("sudo", "echo \"sudo $1\" >> calls; [ \"$1\" = -n ] && exit 0; exec \"$@\"");
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(count(outcome.calls, "sudo env"), 2u) << outcome.calls;
}

TEST_F(InstallDependenciesTest, NeedsRootOrSudo) {
  with_packages("cmake");
  with_user(1000);
  with_apt(0);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("missing: cmake; run this as root, or install sudo"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.calls, "");
}

TEST_F(InstallDependenciesTest, NeverWaitsForAPasswordWithoutATerminal) {
  with_packages("cmake");
  with_user(1000);
  with_apt(0);
  command("sudo", "exit 1");
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("sudo wants a password and there is no terminal"), std::string::npos)
      << outcome.output;
}

TEST_F(InstallDependenciesTest, SaysWhatToInstallElsewhere) {
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("not a Debian-like system"), std::string::npos) << outcome.output;
}

TEST_F(InstallDependenciesTest, RefusesUnknownOptions) {
  with_packages("");
  const Outcome outcome = run("--everything");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("unknown option '--everything'"), std::string::npos) << outcome.output;
}

TEST_F(InstallDependenciesTest, CheckInstallsNothing) {
  with_packages("cmake");
  with_user(0);
  with_apt(0);
  const Outcome outcome = run("--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("missing: cmake"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.calls, "");
}

}  // namespace
