# cmake --install: the program, the library, its headers, and find_package(weft).
