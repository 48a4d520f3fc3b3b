/* code.S - the PTX and the cubins of one version (or of the helper kernels) as read-only bytes and one table of them.
 *
 *     cc -c -DIMAGES=fl_images -DIMAGE_COUNT=fl_image_count -DPTX='"v07.ptx"' -DARCHS=80,90 -Wa,-Ibuild/v07 \
 *         runtime/code.S
 *
 * The table has the type of runtime/image.h: { const char *kind; const unsigned char *bytes; uint64_t size; }.
 * .incbin looks for the files in the folder given by -I. A zero byte ends the PTX, so that it is a C string too.
 */
#ifdef _WIN32
    .section .rdata, "dr"
#else
    .section .rodata
#endif
    .balign 16
.Lptx:
    .incbin PTX
.Lptx_end:
    .byte 0
.Lptx_kind:
    .asciz "ptx"
    .irp arch, ARCHS
    .balign 16
.Lcubin_\arch:
    .incbin "sm_\arch\().cubin"
.Lcubin_end_\arch:
.Lkind_\arch:
    .asciz "sm_\arch"
    .endr

#ifdef _WIN32
    .data
#else
    .section .data.rel.ro, "aw"
#endif
    .balign 8
    .globl IMAGES
IMAGES:
    .quad .Lptx_kind, .Lptx, .Lptx_end - .Lptx
    .irp arch, ARCHS
    .quad .Lkind_\arch, .Lcubin_\arch, .Lcubin_end_\arch - .Lcubin_\arch
    .endr
.Limages_end:
    .balign 8
    .globl IMAGE_COUNT
IMAGE_COUNT:
    .quad (.Limages_end - IMAGES) / 24

#ifndef _WIN32
    .section .note.GNU-stack, "", @progbits
#endif
