//! One line on standard error, built without allocation.

/// A line that grows in place; excess text is cut off.
pub(crate) struct StderrLine {
    text: [u8; 512],
    len: usize,
}

impl StderrLine {
    pub(crate) fn new() -> Self {
        let mut line = Self { text: [0; 512], len: 0 };
        line.text("pathline-guard: ");
        line
    }

    fn byte(&mut self, byte: u8) {
        // One byte is reserved for the end of the line.
        if self.len + 1 < self.text.len() {
            self.text[self.len] = byte;
            self.len += 1;
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        text.bytes().for_each(|byte| self.byte(byte));
        self
    }

    pub(crate) fn bytes(&mut self, text: &[u8]) -> &mut Self {
        text.iter().for_each(|&byte| self.byte(byte));
        self
    }

    pub(crate) fn number(&mut self, number: usize) -> &mut Self {
        self.digits(number, 10)
    }

    pub(crate) fn hex(&mut self, number: usize) -> &mut Self {
        self.text("0x").digits(number, 16)
    }

    fn digits(&mut self, number: usize, base: usize) -> &mut Self {
        let mut digits = [0; 24];
        let (mut left, mut from) = (number, digits.len());
        loop {
            from -= 1;
            digits[from] = b"0123456789abcdef"[left % base];
            left /= base;
            if left == 0 {
                return self.bytes(&digits[from..]);
            }
        }
    }

    /// Writes the line.
    pub(crate) fn write(&mut self) {
        self.text[self.len] = b'\n';
        // SAFETY: the bytes are this line's. A line that cannot be written is lost.
        unsafe { libc::write(libc::STDERR_FILENO, self.text.as_ptr().cast(), self.len + 1) };
    }

    /// Writes the line and ends the process by SIGABRT.
    pub(crate) fn end_process(&mut self) -> ! {
        self.write();
        // SAFETY: it takes nothing and does not return.
        unsafe { libc::abort() }
    }
}
