# What libweft.a is linked with: found when weft is built, and again by find_package(weft) in another project.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)                 # libfmt-dev
find_package(hwy REQUIRED)                 # libhwy-dev
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)   # libxxhash-dev
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)        # libhwloc-dev
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)   # libpcre2-dev
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)       # libyaml-dev
find_package(ICU REQUIRED COMPONENTS uc)   # libicu-dev
find_package(Protobuf REQUIRED)            # libprotobuf-dev, protobuf-compiler
find_package(OpenSSL REQUIRED)             # libssl-dev
find_package(tomlplusplus REQUIRED)        # libtomlplusplus-dev

if(WEFT_LINKS_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)   # libopenmpi-dev
endif()
