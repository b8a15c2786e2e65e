# What `cmake --install BUILD --prefix DIR` writes: the program, the shared libraries that are not part
# of glibc, manual page, completions, recipes, licences. The folder may be moved. Packages of it:
# Packages.cmake. Included by src/cli, whose program it installs.
set_target_properties(nibble PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/nibble")
target_link_options(nibble PRIVATE -Wl,--disable-new-dtags)  # RPATH also serves libraries' own needs
set(nibble_system_libraries "^lib(c|m|dl|rt|pthread|resolv|util)\\.so" "^ld-linux")  # glibc
if(CMAKE_CROSSCOMPILING)  # libraries are looked for in the sysroot, not where ldconfig here says
  install(CODE "set(CMAKE_LDCONFIG_COMMAND sh -c
    \"echo ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}:\")")
endif()
install(TARGETS nibble RUNTIME_DEPENDENCY_SET nibble_libraries RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET nibble_libraries
        PRE_EXCLUDE_REGEXES ${nibble_system_libraries} DESTINATION lib/nibble)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION share/doc/nibble)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/nibble.service
              ${PROJECT_SOURCE_DIR}/deploy/systemd/nibble.toml
        DESTINATION share/doc/nibble/examples)
file(GLOB nibble_recipes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/recipes/*.yaml)
install(FILES ${nibble_recipes} DESTINATION share/nibble/recipes)

# A file of each library whose code is compiled in. The Debian package that it belongs to has the
# licence; see install_notice.cmake.
find_path(NIBBLE_RAPIDJSON rapidjson/rapidjson.h REQUIRED)
find_path(NIBBLE_BOOST boost/version.hpp REQUIRED)
set(nibble_compiled_in ${NIBBLE_TOMLPLUSPLUS}/toml++/toml.h ${NIBBLE_RAPIDJSON}/rapidjson/rapidjson.h
    ${NIBBLE_BOOST}/boost/version.hpp)
set(nibble_cutlass "")  # its code is in the kernels for compute capability 10
if(NIBBLE_CUDA AND NIBBLE_CUDA_TARGETS MATCHES "10[0-9][af]-")
  set(nibble_cutlass ${NIBBLE_CUTLASS_DIR})
endif()
install(CODE "
  set(program \"$<TARGET_FILE:nibble>\")
  set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
  set(sysroot \"${CMAKE_SYSROOT}\")
  set(work \"${CMAKE_BINARY_DIR}/install\")
  set(compiled_in \"${nibble_compiled_in}\")
  set(system_libraries [==[${nibble_system_libraries}]==])
  set(xgrammar \"${NIBBLE_XGRAMMAR_DIR}\")
  set(cuda \"${NIBBLE_CUDA}\")
  set(cutlass \"${nibble_cutlass}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/install_texts.cmake\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/install_notice.cmake\")
")
