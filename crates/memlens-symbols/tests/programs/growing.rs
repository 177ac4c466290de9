//! Blocks of vectors and strings. A comment at the end of a line is the name of what its calls allocate.

struct Row {
    key: u64,
    vals: Vec<f32>,
    name: String,
}

struct Matrix {
    data: Vec<f64>,
    n: usize,
}

impl Matrix {
    fn zero(n: usize) -> Self {
        Matrix { data: vec![0.0; n * n], n }
    }

    fn at(&mut self, i: usize, j: usize) -> &mut f64 {
        &mut self.data[i * self.n + j]
    }
}

fn main() {
    let mut rows: Vec<Row> = Vec::with_capacity(20000); // rows
    for i in 0..20000 {
        let vals = vec![1.0; 16]; // vals
        let name = format!("row number {:08}", i); // name
        rows.push(Row { key: i as u64, vals, name }); // rows
    }
    let mut s = 0.0;
    for _ in 0..10 {
        for r in &rows {
            s += r.vals[3] + r.name.len() as f32 + (r.key & 1) as f32;
        }
    }
    let mut m = Matrix::zero(1000); // m
    for j in 0..1000 {
        for i in 0..1000 {
            *m.at(i, j) += 1.0;
        }
    }
    println!("{} {}", s, *m.at(3, 3));
}
