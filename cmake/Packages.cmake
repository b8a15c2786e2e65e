# Packages of the installed folder: `cpack` in the build folder writes a .deb for Debian 12 and newer
# and systems of its kind, and a .tgz that runs where it is unpacked. A build with the CUDA backend
# makes packages called nibble-cuda.
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME nibble)
if(NIBBLE_CUDA)
  set(CPACK_PACKAGE_NAME nibble-cuda)
endif()
set(CPACK_PACKAGE_VENDOR "The authors of Nibble")
set(CPACK_PACKAGE_CONTACT "The authors of Nibble <nibble@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "quantizes Qwen3.5/3.6 checkpoints to NVFP4 and serves them")
set(CPACK_PACKAGE_DESCRIPTION
    "One program that turns BF16 checkpoints into four bits a weight and answers clients of
OpenAI's and Anthropic's APIs, on one card or on a plain CPU.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_VERBATIM_VARIABLES ON)

# The package carries its libraries, so it asks for nothing but glibc: tests/packages_test.sh holds
# the program to this version.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_CROSSCOMPILING)  # else dpkg says it
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36)")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
if(NIBBLE_CUDA)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES nibble)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS nibble)
  set(CPACK_DEBIAN_PACKAGE_REPLACES nibble)
else()
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS nibble-cuda)
  set(CPACK_DEBIAN_PACKAGE_REPLACES nibble-cuda)
endif()
set(control ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${control}/postinst;${control}/prerm;${control}/postrm;${control}/conffiles")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)

set(CPACK_NIBBLE_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_kinds.cmake)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # cpack packs the program that is built, and builds no tests
include(CPack)
